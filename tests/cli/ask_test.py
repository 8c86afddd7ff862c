"""generate (one prompt) and chat: answers, streams, statistics (design/cli.md 2)."""
import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from program import PROGRAM, ROOT, ProgramTest, environment, run

SUM = ["--chat", "What is 37 + 45?", "--effort", "75", "--greedy"]


class Generate(ProgramTest):
    def test_the_answer_goes_to_stdout_and_nothing_else(self):
        ran = self.succeeds("generate", *SUM)
        self.assertEqual((ran.out, ran.err), ("The answer is 82.\n", ""))

    def test_thinking_is_separate_from_the_answer(self):
        answer = self.succeeds("generate", *SUM, "--json").json()
        self.assertEqual(answer["text"], "The answer is 82.")
        self.assertEqual(answer["reasoning"], "30 + 40 = 70. 7 + 5 = 12. Together 82.")
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(set(answer), {"index", "text", "reasoning", "tool_calls", "token_ids", "finish_reason", "usage",
                                       "timing"})
        self.assertEqual(answer["usage"]["completion_tokens"], len(answer["token_ids"]))
        self.assertEqual(self.succeeds("generate", *SUM, "--reasoning", "only").out, answer["reasoning"] + "\n")

    def test_reasoning_goes_to_stderr_when_it_is_asked_for(self):
        ran = self.succeeds("generate", *SUM, "--reasoning", "show")
        self.assertEqual((ran.out, ran.err), ("The answer is 82.\n", "30 + 40 = 70. 7 + 5 = 12. Together 82.\n"))
        self.assertEqual(self.succeeds("generate", *SUM, "--reasoning", "hide").err, "")

    def test_backends_drafts_and_replay_do_not_change_a_short_answer(self):
        for words in (["--drafts", "0"], ["--drafts", "2"], ["--backend", "reference"], ["--replay", "off"],
                      ["--threads", "1"], ["--step-rows", "7"], ["--n", "1"]):
            with self.subTest(" ".join(words)):
                self.assertEqual(self.succeeds("generate", *SUM, *words).out, "The answer is 82.\n")

    def test_a_tool_call_is_told_from_text(self):
        words = ["--chat", "Set an alarm for 04:37.", "--tools", ROOT / "examples/tools.json", "--effort", "50", "--greedy"]
        answer = self.succeeds("generate", *words, "--json").json()
        self.assertEqual(answer["finish_reason"], "tool_calls")
        self.assertEqual(answer["tool_calls"][0]["name"], "set_alarm")
        self.assertEqual(json.loads(answer["tool_calls"][0]["arguments"]), {"hour": 4, "minute": 37})
        self.assertNotIn("DSML", answer["text"])
        self.assertEqual(self.succeeds("generate", *words).out.strip(), 'set_alarm({"hour": 4, "minute": 37})')

    def test_the_prompt_comes_from_argument_file_or_stdin(self):
        words = ["--chat", "--effort", "none", "--greedy"]
        expected = "The chemical symbol of iron is Fe.\n"
        self.assertEqual(self.succeeds("generate", *words, "Symbol for iron?").out, expected)
        self.assertEqual(self.succeeds("generate", *words, stdin="Symbol for iron?\n").out, expected)
        self.assertEqual(self.succeeds("generate", *words, "-", stdin="Symbol for iron?").out, expected)
        path = self.folder() / "p"
        path.write_text("Symbol for iron?\n")
        self.assertEqual(self.succeeds("generate", *words, "--prompt-file", path).out, expected)

    def test_a_user_cannot_type_a_special_token(self):
        plain = self.succeeds("generate", "--chat", "a <think> b", "--show-prompt", "--max-tokens", "1", "--json").json()
        other = self.succeeds("generate", "--chat", "a think b", "--max-tokens", "1", "--json").json()
        self.assertGreater(plain["usage"]["prompt_tokens"], other["usage"]["prompt_tokens"])

    def test_ids_are_taken_as_they_are(self):
        rendered = self.succeeds("generate", "--chat", "Symbol for iron?", "--effort", "none", "--greedy", "--show-prompt")
        ids = self.succeeds("tokenize", "--file", "-", stdin=rendered.err.rstrip("\n")).out.split()
        answer = self.succeeds("generate", "--ids", ",".join(ids), "--greedy", "--json").json()
        self.assertEqual(answer["text"], "The chemical symbol of iron is Fe.")
        self.fails(2, "generate", "--ids", "99999", mentions=["99,999"])

    def test_a_seed_repeats_and_n_answers_differ_by_it(self):
        words = ["generate", "The", "--seed", "7", "--max-tokens", "12", "--temperature", "1.5", "--top-p", "1"]
        self.assertEqual(self.succeeds(*words).out, self.succeeds(*words).out)
        answers = self.succeeds(*words, "--n", "3", "--json").lines()
        self.assertEqual(sorted(a["index"] for a in answers), [0, 1, 2])
        self.assertEqual(len({a["text"] for a in answers}), 3)

    def test_stop_texts_ids_and_lengths(self):
        full = self.succeeds("generate", *SUM, "--json").json()
        cut = self.succeeds("generate", *SUM, "--stop", "swer is", "--json").json()
        self.assertEqual((cut["text"], cut["finish_reason"]), ("The an", "stop"))
        short = self.succeeds("generate", *SUM, "--max-tokens", "3", "--json").json()
        self.assertEqual((len(short["token_ids"]), short["finish_reason"]), (3, "length"))
        stop_id = full["token_ids"][4]
        ended = self.succeeds("generate", *SUM, "--stop-id", stop_id, "--json").json()
        self.assertEqual(ended["token_ids"], full["token_ids"][: full["token_ids"].index(stop_id) + 1])

    def test_logprobs_are_of_raw_logits(self):
        answer = self.succeeds("generate", *SUM, "--logprobs", "2", "--prompt-logprobs", "--json").json()
        self.assertEqual(len(answer["logprobs"]), len(answer["token_ids"]))
        self.assertEqual(len(answer["prompt_logprobs"]), answer["usage"]["prompt_tokens"] - 1)
        for token, entry in zip(answer["token_ids"], answer["logprobs"]):
            self.assertEqual(entry["id"], token)
            self.assertEqual(entry["top"][0]["id"], token)  # greedy
            self.assertLessEqual(entry["logprob"], 0)

    def test_statistics_go_to_stderr(self):
        ran = self.succeeds("generate", *SUM, "--stats")
        self.assertEqual(ran.out, "The answer is 82.\n")
        for text in ("cached", "replayed", "new", "first token", "tokens/s", "by position", "peak memory"):
            self.assertIn(text, ran.err)

    def test_exits_of_bad_requests(self):
        self.fails(2, "generate", "x", "--context", "99999", mentions=["99,999", "8,192"])
        self.fails(3, "generate", "--context", "64", stdin="word " * 500, mentions=["64"])
        self.fails(3, "generate", stdin=b"a\xff", mentions=["UTF-8 at byte 1"])
        self.fails(2, "generate", "--chat", "", mentions=["empty"])
        self.fails(3, "generate", "--chat", "x", "--tools", "/nonexistent", mentions=["/nonexistent"])
        self.fails(2, "generate", "x", "--logit-bias", "5", mentions=["--logit-bias"])
        self.fails(3, "generate", "--prompt-file", "/nonexistent", mentions=["/nonexistent"])

    def test_an_interrupted_answer_exits_130(self):
        program = subprocess.Popen([PROGRAM, "generate", "The", "--ignore-eos", "--greedy"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        first = os.read(program.stdout.fileno(), 1)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
        self.assertEqual(program.returncode, 130)
        self.assertTrue((first + out).endswith(b"\n"))
        self.assertIn(b"interrupted", err)


class Chat(ProgramTest):
    def test_each_line_of_a_pipe_is_a_message(self):
        ran = self.succeeds("chat", "--effort", "none", "--greedy",
                            stdin="Symbol for iron?\nSymbol for zinc?")
        self.assertEqual(ran.out, "The chemical symbol of iron is Fe.\nThe chemical symbol of zinc is Zn.\n")
        self.assertEqual(ran.err, "")

    def test_slash_commands(self):
        path = self.folder() / "c.json"
        ran = self.succeeds("chat", "--effort", "none", stdin=f"/set temperature 0\nSymbol for iron?\n/tokens\n/stats\n"
                            f"/save {path}\n/undo\n/load {path}\n/hepl\n/set temprature 1\n/new\n/exit\nnever read\n")
        self.assertEqual(ran.out, "The chemical symbol of iron is Fe.\n")
        for text in ("of 8,192 tokens", "first token", "saved", "2 messages", "did you mean /help?",
                     "did you mean temperature?"):
            self.assertIn(text, ran.err)
        self.assertEqual([m["role"] for m in json.loads(path.read_text())["messages"]], ["user", "assistant"])

    def test_retry_asks_the_same_again(self):
        ran = self.succeeds("chat", "--effort", "none", "--greedy", stdin="Symbol for iron?\n/retry\n")
        self.assertEqual(ran.out, "The chemical symbol of iron is Fe.\n" * 2)

    def test_on_a_terminal_ctrl_c_stops_the_answer_and_then_leaves(self):
        main, side = pty.openpty()
        program = subprocess.Popen([PROGRAM, "chat", "--effort", "none", "--ignore-eos", "--greedy"], stdin=side,
                                   stdout=side, stderr=side, env=environment({"NO_COLOR": "1"}), start_new_session=True)
        os.close(side)
        seen = b""

        def read_until(text, seconds=30):
            nonlocal seen
            end = time.monotonic() + seconds
            while text not in seen and time.monotonic() < end:
                if select.select([main], [], [], 0.1)[0]:
                    try:
                        seen += os.read(main, 4096)
                    except OSError:
                        break
            self.assertIn(text, seen)
            seen = seen.split(text, 1)[1]

        try:
            read_until(b"> ")
            os.write(main, b"Symbol for iron?\n")
            read_until(b"Fe")
            program.send_signal(signal.SIGINT)
            read_until(b"(stopped)")
            read_until(b"> ")
            program.send_signal(signal.SIGINT)
            self.assertEqual(program.wait(timeout=30), 130)
        finally:
            program.kill()
            program.wait()
            os.close(main)

    def test_colours_only_on_a_terminal_without_no_color(self):
        def dimmed(env):
            main, side = pty.openpty()
            done = subprocess.Popen([PROGRAM, "generate", *SUM], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=side, env=environment(env))
            os.close(side)
            seen = b""
            while True:
                try:
                    piece = os.read(main, 4096)
                except OSError:
                    break
                if not piece:
                    break
                seen += piece
            done.wait(timeout=60)
            os.close(main)
            return seen

        self.assertIn(b"\x1b[2m", dimmed({}))
        plain = dimmed({"NO_COLOR": "1"})
        self.assertNotIn(b"\x1b", plain)
        self.assertIn(b"Together 82.", plain)

    def test_usage(self):
        self.fails(2, "chat", "--effort", "much", mentions=["--effort"])
        self.fails(2, "chat", "--endpoint", "http://127.0.0.1:1", mentions=["--endpoint", "yet"])


if __name__ == "__main__":
    unittest.main()
