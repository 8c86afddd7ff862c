"""Runs the conformance suite with the packages of this interpreter and, with --report FILE, writes what came out.

  build/sdk-environment/bin/python tests/server/sdk/run_suite.py --report docs/sdk-conformance.md
"""
import argparse
import platform
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
LEAST = 80


class Collected(unittest.TextTestResult):
    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.verdicts = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.verdicts.append((test.id(), "passed"))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.verdicts.append((test.id(), "failed"))

    def addError(self, test, err):
        super().addError(test, err)
        self.verdicts.append((test.id(), "failed"))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.verdicts.append((test.id(), f"skipped: {reason}"))


def sentence(name):
    return name.removeprefix("test_").replace("_", " ")


def report(verdicts, seconds):
    import anthropic
    import openai
    passed = sum(verdict == "passed" for _, verdict in verdicts)
    lines = ["# The official clients against `fathom serve`", "",
             f"Written by `scripts/test --sdk`: {passed} of {len(verdicts)} checks passed in {seconds:.0f} s with openai {openai.__version__}, anthropic {anthropic.__version__} "
             f"(exact files: `tests/server/sdk/requirements.txt`), Python {platform.python_version()}, the embedded miniature on a CPU. Each line is a test of "
             "`tests/server/sdk/`; all run against the real program over a socket.", ""]
    group = None
    for name, verdict in verdicts:
        module, kind, test = name.split(".")[-3:]
        if (module, kind) != group:
            group = (module, kind)
            lines += ["", f"## {module.removesuffix('_test')}: {kind}", "", "| check | result |", "| --- | --- |"]
        lines.append(f"| {sentence(test)} | {verdict} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--report")
    options = options.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromNames(["openai_test", "anthropic_test"])
    begin = time.monotonic()
    result = unittest.TextTestRunner(resultclass=Collected, verbosity=1).run(suite)
    verdicts = result.verdicts
    if options.report:
        Path(options.report).write_text(report(verdicts, time.monotonic() - begin))
    if len(verdicts) < LEAST:
        print(f"only {len(verdicts)} checks ran, {LEAST} are promised")
    return 0 if result.wasSuccessful() and len(verdicts) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
