"""The completion scripts, each in its own shell: what a person sees after Tab (design/cli.md). A shell that is not
installed is skipped; CI has bash."""
import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

from program import COMMANDS, PROGRAM, ProgramTest, environment, run


def need(shell):
    return unittest.skipIf(shutil.which(shell) is None, f"{shell} is not installed")


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, words, folder):
        child, self.descriptor = pty.fork()
        if child == 0:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update({"PATH": f"{os.path.dirname(PROGRAM)}:/usr/bin:/bin", "TERM": "dumb", "HOME": str(folder),
                               "COLUMNS": "200", "LINES": "50", "ZDOTDIR": str(folder), "INPUTRC": "/dev/null"})
            os.execvp(words[0], words)
        self.child = child

    def send(self, text):
        os.write(self.descriptor, text.encode())

    def until(self, pattern, seconds=20):
        """What came since the last call, until the pattern is in it."""
        out, end = "", time.monotonic() + seconds
        while not re.search(pattern, out) and time.monotonic() < end:
            if select.select([self.descriptor], [], [], 0.1)[0]:
                try:
                    out += os.read(self.descriptor, 65536).decode(errors="replace")
                except OSError:
                    break
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\r", "", out)

    def close(self):
        os.close(self.descriptor)
        try:
            os.kill(self.child, 9)
        except ProcessLookupError:
            pass
        os.waitpid(self.child, 0)


class Scripts(ProgramTest):
    def test_both_forms_give_the_same_script_and_an_unknown_shell_is_refused(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.succeeds("--completion", shell).out
            self.assertEqual(script, self.succeeds(f"--completion={shell}").out)
            for command in COMMANDS:
                self.assertIn(command, script)
        self.fails(2, "--completion", "tcsh", mentions=["bash, zsh or fish"])


@need("bash")
class Bash(ProgramTest):
    def replies(self, *lines):
        """COMPREPLY for each list of words, the last of which is being typed."""
        probe = run("--completion", "bash").out
        for words in lines:
            quoted = " ".join("'" + word + "'" for word in words)
            probe += f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _fathom; echo "${{COMPREPLY[*]}}"'
        done = subprocess.run(["bash", "-u"], input=probe.encode(), capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode().splitlines()

    def test_commands_options_and_values(self):
        self.assertEqual(
            self.replies(["fathom", "tok"], ["fathom", "generate", "--repl"], ["fathom", "generate", "--replay", ""],
                         ["fathom", "generate", "--replay", "=", "ha"], ["fathom", "generate", "--replay", "="],
                         ["fathom", "bench", "p"], ["fathom", "--completion", "z"], ["fathom", "generate", "--seed", ""],
                         ["fathom", "--threads", "2", "tok"], ["fathom", "--threads", "2", "generate", "--repl"],
                         ["fathom", "--backend", "re"]),
            ["tokenize", "--replay", "compact halo off mask", "halo", "compact halo off mask", "prefill", "zsh", "",
             "tokenize", "--replay", "reference"])
        self.assertEqual(set(COMMANDS) - set(self.replies(["fathom", ""])[0].split()), set())

    def test_on_a_terminal_files_with_blanks_complete_and_numbers_offer_no_files(self):
        folder = self.folder()
        (folder / "my model").mkdir()
        (folder / "generate").mkdir()
        (folder / "completion").write_text(run("--completion", "bash").out)
        terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], folder)
        self.addCleanup(terminal.close)
        terminal.send("PS1='ready> '; source ./completion; echo lo''aded\n")
        terminal.until("loaded\r\n")
        for typed, seen in (("fathom generate --model my\t", r"my\\ model/"), ("fathom gen\t", "fathom generate "),
                            ("fathom generate --replay=ha\t", "--replay=halo ")):
            with self.subTest(typed):
                terminal.send(typed)
                self.assertRegex(terminal.until(seen, 5), seen)
                terminal.send("\x15")
                terminal.until("ready", 1)
        terminal.send("fathom generate --seed my\t\t")
        self.assertNotIn("model", terminal.until("model", 1))


@need("zsh")
class Zsh(ProgramTest):
    def start(self, how):
        folder = self.folder()
        (folder / "my model").mkdir()
        (folder / "_fathom").write_text(run("--completion", "zsh").out)
        terminal = Terminal(["zsh", "-f", "-i"], folder)
        self.addCleanup(terminal.close)
        terminal.send("PS1='ready> '; unsetopt beep zle_bracketed_paste 2>/dev/null; LISTMAX=1000\n")
        if how == "fpath":
            terminal.send("fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; echo lo''aded\n")
        else:
            terminal.send("autoload -Uz compinit; compinit -u -D; source ./_fathom; echo lo''aded\n")
        self.assertIn("loaded", terminal.until("loaded\r"))
        return terminal

    def test_commands_options_and_values_whichever_way_it_is_loaded(self):
        for how in ("fpath", "source"):
            terminal = self.start(how)
            for typed, seen in (("fathom tok\t", "fathom tokenize "), ("fathom generate --repl\t", "--replay="),
                                ("fathom generate --replay=ha\t", "--replay=halo"),
                                ("fathom generate --replay \t", r"compact +halo +mask +off"),
                                ("fathom bench \t", r"codec +decode +engine +kernels +prefill +serve"), ("fathom bench p\t", "bench prefill"),
                                ("fathom --threads 2 tok\t", "tokenize"),
                                ("fathom --completion \t", "bash +fish +zsh"),
                                ("fathom generate --model my\t", r"my\\ model"),
                                ("fathom inspect --pla\t", "inspect --plan"),
                                ("fathom generate --stop a --sto\t\t", r"--stop-id +-- "),
                                ("fathom \t", r"(?s)bench +-- .*tokenize +-- ")):
                with self.subTest(f"{how}: {typed}"):
                    terminal.send(typed)
                    out = terminal.until(seen, 5)
                    self.assertRegex(out, seen)
                    self.assertNotRegex(out, "_arguments:|_describe:|bad pattern|parse error|comparguments")
                    terminal.send("\x15")  # kills the line
                    terminal.until("$^", 0.2)


@need("fish")
class Fish(ProgramTest):
    def complete(self, line, folder):
        """Candidates of fish for a line, without their descriptions."""
        done = subprocess.run(["fish", "--no-config", "-c", "source ./fathom.fish; complete -C $argv[1]", line],
                              cwd=folder, capture_output=True, env=environment({"HOME": str(folder)}))
        self.assertEqual((done.returncode, done.stderr.decode()), (0, ""))
        return [candidate.split("\t")[0] for candidate in done.stdout.decode().splitlines()]

    def test_commands_options_and_values(self):
        folder = self.folder()
        (folder / "my model").mkdir()
        (folder / "fathom.fish").write_text(run("--completion", "fish").out)
        self.assertLessEqual(set(COMMANDS), set(self.complete("fathom ", folder)))
        for line, candidates in (("fathom gen", ["generate"]), ("fathom generate --repl", ["--replay"]),
                                 ("fathom generate --replay ", ["compact", "halo", "mask", "off"]),
                                 ("fathom generate --replay=ha", ["--replay=halo"]),
                                 ("fathom bench ", ["codec", "decode", "engine", "kernels", "prefill", "serve"]), ("fathom --threads 2 tok", ["tokenize"]),
                                 ("fathom --threads 2 generate --repl", ["--replay"]),
                                 ("fathom --completion ", ["bash", "fish", "zsh"]),
                                 ("fathom generate --seed m", []), ("fathom doctor m", []),
                                 ("fathom generate --model m", ["my model/"])):
            with self.subTest(line):
                self.assertEqual(sorted(self.complete(line, folder)), candidates)


if __name__ == "__main__":
    unittest.main()
