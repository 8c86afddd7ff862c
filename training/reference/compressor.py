"""Compressor of a KV source: one latent row for each group of `ratio` tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.reference.cache import LayerCache, append
from training.reference.config import Config
from training.reference.layers import Linear, Norm
from training.reference.options import Options


class Compressor(nn.Module):
    def __init__(self, cfg: Config, opts: Options, ratio: int) -> None:
        super().__init__()
        self.opts, self.ratio = opts, ratio
        self.wkv = Linear(opts, cfg.hidden_size, cfg.head_dim, "bf16")
        if ratio > 1:
            self.wgate = Linear(opts, cfg.hidden_size, cfg.head_dim, "bf16")
        self.norm = Norm(cfg.head_dim, cfg.rms_norm_eps)

    def forward(self, x: Tensor, cache: LayerCache) -> Tensor:
        """Normed, un-rotated latents [B, n, C] of the groups that x completes."""
        if self.ratio == 1:
            return self.norm(self.wkv(x))
        raw = torch.cat((self.wkv(x, torch.float32), self.wgate(x, torch.float32)), dim=-1)
        done = 0 if cache.raw is None else cache.raw.shape[1] // self.ratio
        cache.raw = append(cache.raw, raw)
        total = cache.raw.shape[1] // self.ratio
        group = cache.raw[:, done * self.ratio : total * self.ratio].unflatten(1, (total - done, self.ratio))
        value, gate = group.chunk(2, dim=-1)
        return self.norm((value * gate.softmax(dim=2)).sum(2).to(x.dtype))
