"""What a sequence keeps between forward calls, and what layers hand to each other inside one.

Caches hold one row per position and visibility is decided by masks, so "ring buffer" and
"rollback" become "keep the last W rows" and "truncate". A server's rings and blocks hold the
same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.reference.config import Config


@dataclass
class LayerCache:
    window: Tensor | None = None  # [B, n, C] rows of positions [window_start, window_start + n)
    window_start: int = 0
    raw: Tensor | None = None  # ratio 2 sources: [B, n, 2C] un-pooled (value | gate) rows, all positions
    comp: Tensor | None = None  # KV sources: [B, S, C]
    ikey: Tensor | None = None  # KV sources: [B, S, index_head_dim]


@dataclass
class Cache:
    length: int = 0
    tokens: Tensor | None = None  # [B, length] token ids, for the n-gram look-back
    image: Tensor | None = None  # [B, length] True on image positions
    layers: list[LayerCache] = field(default_factory=list)
    draft: list[LayerCache] = field(default_factory=list)

    @classmethod
    def new(cls, cfg: Config) -> Cache:
        return cls(
            layers=[LayerCache() for _ in range(cfg.n_layers)],
            draft=[LayerCache() for _ in range(cfg.num_nextn_predict_layers)],
        )

    def truncate(self, length: int, ratios: list[int]) -> None:
        """Forget everything at positions >= length (rollback of rejected drafts)."""
        assert length <= self.length
        self.length = length
        self.tokens, self.image = self.tokens[:, :length], self.image[:, :length]
        for layer, ratio in zip(self.layers + self.draft, ratios, strict=True):
            if layer.window is not None:
                layer.window = layer.window[:, : max(length - layer.window_start, 0)]
            if layer.raw is not None:
                layer.raw = layer.raw[:, :length]
            if layer.comp is not None:
                layer.comp, layer.ikey = layer.comp[:, : length // ratio], layer.ikey[:, : length // ratio]


def append(old: Tensor | None, new: Tensor) -> Tensor:
    """Rows [B, n, ...] with `new` behind `old`; None stands for no rows yet."""
    return new if old is None else torch.cat((old, new), dim=1)


@dataclass
class Shared:
    """What source layers hand to later layers inside one forward call."""

    kv: LayerCache | None = None
    selected: Tensor | None = None  # [B, T, S]
    candidates: Tensor | None = None  # [B, T, S]
    index_losses: list[Tensor] = field(default_factory=list)
    trace: dict[str, Tensor] | None = None  # filled when the caller wants intermediate values
