"""Where the tests find the miniature and the golden vectors; what is not there is skipped, not failed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from training.reference import checkpoint
from training.reference.model import Model

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("FATHOM_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture(scope="session", autouse=True)
def _two_threads() -> None:
    torch.set_num_threads(2)  # as the golden vectors were written: the order of sums depends on it


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("no golden vectors beside the repository (set FATHOM_SHARED)")
    return folder


@pytest.fixture(scope="session")
def miniature_folder() -> Path:
    for folder in (REPOSITORY / "models" / "mini", SHARED / "mini"):
        if (folder / "config.json").exists() and (folder / "eval.jsonl").exists():
            return folder
    pytest.skip("models/mini has no checkpoint with eval.jsonl")


@pytest.fixture(scope="session")
def miniature(miniature_folder: Path) -> Model:
    return checkpoint.load(miniature_folder).eval()


@pytest.fixture(scope="session")
def held_out(miniature_folder: Path) -> list[dict]:
    return [
        json.loads(line) for line in (miniature_folder / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    ]
