"""Training rows from the corpus files, and which of their tokens the model would have to write."""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.reference.vocabulary import SPECIAL

BOS, EOS = SPECIAL.index("<｜begin▁of▁sentence｜>"), SPECIAL.index("<｜end▁of▁sentence｜>")
USER, ASST = SPECIAL.index("<｜User｜>"), SPECIAL.index("<｜Assistant｜>")


def shards(path: Path) -> list[Path]:
    """train.bin stands for train*.bin, or where there is none for train*.bin.xz."""
    found = sorted(path.parent.glob(f"{path.stem}*.bin")) or sorted(path.parent.glob(f"{path.stem}*.bin.xz"))
    if not found:
        sys.exit(
            f"no {path.stem}*.bin or {path.stem}*.bin.xz in {path.parent}: run training.miniature.corpus first"
        )
    return found


class Rows:
    """Random rows of T + 1 tokens, each starting at a document start; the whole file lives on the device."""

    def __init__(self, path: Path, device: torch.device, seq: int, seed: int) -> None:
        raw = b"".join(
            f.read_bytes() if f.suffix == ".bin" else lzma.decompress(f.read_bytes()) for f in shards(path)
        )
        ids = torch.from_numpy(np.frombuffer(raw, dtype=np.uint16).astype(np.int32)).to(device)
        starts = (ids == BOS).nonzero().squeeze(1)
        self.ids, self.starts = ids, starts[starts < len(ids) - seq - 1]
        self.span = torch.arange(seq + 1, device=device)
        self.rng = torch.Generator(device).manual_seed(seed)

    def __call__(self, batch: int) -> Tensor:
        s = self.starts[torch.randint(len(self.starts), (batch,), generator=self.rng, device=self.ids.device)]
        return self.ids[s[:, None] + self.span].long()


def answer_mask(ids: Tensor) -> Tensor:
    """True where the next token belongs to an assistant turn (its EOS included)."""
    at = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    begin = torch.where(ids == ASST, at, -1).cummax(1).values
    end = torch.where((ids == EOS) | (ids == BOS) | (ids == USER), at, -1).cummax(1).values
    return begin > end
