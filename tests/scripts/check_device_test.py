"""scripts/check-device with programs that answer as it is told here: what it calls a failure, and what it leaves."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/check-device"

FATHOM = """#!/usr/bin/env python3
import json, os, sys
arguments = sys.argv[1:]
backend = arguments[arguments.index("--backend") + 1]
if backend == os.environ.get("NO_DEVICE"):
    sys.exit("fathom: no NVIDIA GPU can be used")
if arguments[0] == "check-golden":
    print("129 stages on cuda: 117 pass, 0 fail, 12 informative")
    sys.exit(int(os.environ.get("GOLDEN", "0")))
if "--input" in arguments:
    other = [] if backend == "cpu" else os.environ.get("OTHER", "").split()
    with open(arguments[arguments.index("--output") + 1], "w") as out:
        for line in open(arguments[arguments.index("--input") + 1]):
            id = json.loads(line)["id"]
            last = 2 if id in other and ("5" in arguments or "ALL" in os.environ) else 1
            out.write(json.dumps({"id": id, "response": {"token_ids": [7, last]}}) + "\\n")
"""
TESTS = """#!/usr/bin/env bash
echo "[  PASSED  ] 3 tests."
echo "[  SKIPPED ] 2 tests, listed below:"
[[ -z "$BROKEN" ]] || echo "[  FAILED  ] Some.Test/cuda (3 ms)"
[[ -z "$BROKEN" ]]
"""


class CheckDevice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("fathom", "backend_test", "model_test", "engine_test"):
            (self.folder / name).write_text(FATHOM if name == "fathom" else TESTS)
            (self.folder / name).chmod(0o755)

    def check(self, *arguments, **environment):
        done = subprocess.run(
            [sys.executable, SCRIPT, "--programs", self.folder, "--golden", self.folder, "--logs", self.folder / "logs",
             "--json", *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def failures(self, *arguments, **environment):
        status, lines, errors = self.check(*arguments, **environment)
        failed = [line["check"] for line in lines if not line["ok"]]
        self.assertEqual(status, 1 if failed else 0, errors)
        return failed

    def test_all_is_well(self):
        status, lines, _ = self.check()
        self.assertEqual(status, 0)
        self.assertEqual(len(lines), 3 + 2 + 1 + 6)
        self.assertEqual(sum("tests" in line["check"] for line in lines), 3)

    def test_a_test_that_fails_is_named(self):
        status, lines, _ = self.check("--part", "tests", BROKEN="1")
        self.assertEqual(status, 1)
        self.assertIn("Some.Test/cuda", lines[0]["result"])

    def test_golden_tensors_that_differ(self):
        self.assertEqual(len(self.failures("--part", "golden", GOLDEN="1")), 2)

    def test_near_ties_with_the_processor_are_no_failure(self):
        self.assertEqual(self.failures("--part", "texts", OTHER="42 321", ALL="1"), [])
        self.assertEqual(len(self.failures("--part", "texts", OTHER="1 2 3", ALL="1")), 6)

    def test_modes_of_a_device_agree(self):
        self.assertEqual(self.failures("--part", "texts", OTHER="42"),
                         ["texts cuda --drafts 5", "texts cuda --drafts 5 --batch-invariant"])

    def test_without_a_device_nothing_else_is_tried(self):
        self.assertEqual(self.failures(NO_DEVICE="cuda"), ["one token on cuda"])

    def test_a_mistake_is_one_line_that_says_what_to_do(self):
        for arguments, word in ((["--programs", "/nowhere"], "--programs"), (["--part", "all"], "--part"),
                                (["--limit", "long"], "--limit"), (["--logs", "/dev/null/x"], "--logs"),
                                (["--pack", "/nowhere/x.tar.xz"], "--pack"),
                                (["--pack", "x.tar.xz", "--golden", "/nowhere"], "--golden")):
            status, _, errors = self.check(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn(word, errors)


if __name__ == "__main__":
    unittest.main()
