#!/usr/bin/env python3
"""Runs the commands of README.md, docs/codec.md and docs/guides as they are written (case inst-02: guides that no longer work).

  tests/guides/run_guides.py --program build/release/fathom [--with build/release/example_codec] [FILE.md ...]

Every ```sh block runs in bash; the blocks of one page run in order in one empty folder that shows the checkout's files and
has the given program as build/release/fathom, and those of --with beside it. All must exit 0. A block below a line `<!-- not run ...: reason -->` is left
out; so is every other fence (```text, ```console). Exits 1 when a block fails, or when no block was found at all.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\s*$")
NOT_RUN = re.compile(r"^<!-- not run\b.*-->\s*$")
SECONDS = 2400 if os.environ.get("FATHOM_BRIEF") else 300  # a block; the sanitizers are slow


def blocks_of(page):
    """(line, script) of each ```sh block that is to run."""
    found, lines = [], page.read_text(encoding="utf-8").splitlines()
    begin, language, skip, wanted = None, "", False, True
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if begin is None:
            if fence:
                begin, language, wanted, skip = number, fence[1], not skip, False
            elif line.strip():
                skip = bool(NOT_RUN.match(line))
        elif line.strip() == "```":
            if language == "sh" and wanted:
                found.append((begin + 1, "\n".join(lines[begin:number - 1]) + "\n"))
            begin = None
    if begin is not None:
        raise SystemExit(f"{page}:{begin}: a fence that is never closed")
    return found


def playground(folder, program, others):
    """The checkout as a reader sees it, without its build folders, plus the programs under test."""
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "fathom").symlink_to(program)
    for other in others:
        (folder / "build" / "release" / other.name).symlink_to(other)


def run_page(page, program, others):
    """Number of blocks run and the failures as texts."""
    failures, blocks = [], blocks_of(page)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("FATHOM_") or name == "FATHOM_SHARED"}
    with tempfile.TemporaryDirectory(prefix="fathom_guide_") as folder:
        playground(Path(folder), program, others)
        for line, script in blocks:
            try:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, text=True,
                                      stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, errors="replace")
                verdict = f"exit {done.returncode}\n{done.stdout}{done.stderr}" if done.returncode else ""
            except subprocess.TimeoutExpired:
                verdict = f"not finished after {SECONDS} s"
            if verdict:
                failures.append(f"{page.relative_to(ROOT)}:{line}: {verdict.strip()}\n--- the block:\n{script}")
    return len(blocks), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True, help="the built fathom")
    parser.add_argument("--with", dest="others", type=Path, action="append", default=[], help="a further built program")
    parser.add_argument("pages", type=Path, nargs="*", help="default: README.md, docs/codec.md and docs/guides/*.md")
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages] or [
        ROOT / "README.md", ROOT / "docs/codec.md", *sorted((ROOT / "docs/guides").glob("*.md"))]
    total, failures = 0, []
    for page in pages:
        count, failed = run_page(page, arguments.program.resolve(), [other.resolve() for other in arguments.others])
        total += count
        failures += failed
        print(f"{page.relative_to(ROOT)}: {count} blocks, {len(failed)} failed")
    for failure in failures:
        print(failure)
    if total == 0:
        print("no block was found: the guides have no ```sh fence, or their format has changed")
    return 1 if failures or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
