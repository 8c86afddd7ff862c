"""Runs the built program as a user would: FATHOM_PROGRAM names it. Used by the tests of this folder."""
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("FATHOM_PROGRAM", str(ROOT / "build/release/fathom"))
MINI = ROOT / "models/mini"
SECONDS = 900 if os.environ.get("FATHOM_BRIEF") else 120  # a run; the sanitizers are slow

COMMANDS = ("generate", "chat", "serve", "tokenize", "codec", "inspect", "plan", "doctor", "check-golden", "make-checkpoint", "bench")
PLANNED = ("route", "eval", "kv")


def environment(extra=None):
    """The caller's environment without its own FATHOM_* settings, so that a test sees the defaults."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FATHOM_") and k != "NO_COLOR"}
    return kept | (extra or {})


class Run:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def json(self):
        return json.loads(self.out)

    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


def run(*words, stdin="", env=None, cwd=None):
    begin = time.monotonic()
    done = subprocess.run([PROGRAM, *map(str, words)], input=stdin if isinstance(stdin, bytes) else stdin.encode(),
                          capture_output=True, env=environment(env), cwd=cwd, timeout=SECONDS)
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode(), time.monotonic() - begin)


class ProgramTest(unittest.TestCase):
    maxDiff = None

    def folder(self):
        path = Path(tempfile.mkdtemp(prefix="fathom-cli-"))
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def fails(self, code, *words, mentions=(), within=None, **more):
        """The program ends with `code`, prints one line on stderr that mentions all of these, and nothing on stdout."""
        ran = run(*words, **more)
        self.assertEqual(ran.code, code, ran.err + ran.out)
        self.assertTrue(ran.err.startswith("fathom: "), ran.err)
        self.assertEqual(ran.err.count("\n"), 1, f"not one line: {ran.err!r}")
        self.assertTrue(ran.err.endswith((".\n", "?\n")), ran.err)
        for text in mentions:
            self.assertIn(text, ran.err)
        if within is not None:
            self.assertLess(ran.seconds, within)
        return ran

    def succeeds(self, *words, **more):
        ran = run(*words, **more)
        self.assertEqual(ran.code, 0, ran.err)
        return ran


def copy_of_mini(folder):
    """A checkpoint folder that a test may damage."""
    target = folder / "model"
    shutil.copytree(MINI, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
