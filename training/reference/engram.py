"""Engram: rows of a hash table, looked up by the n-grams that end at a position, gated into the streams."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.reference import number_formats
from training.reference.config import Config
from training.reference.layers import Linear
from training.reference.options import Options
from training.reference.primes import engram_primes


class NgramHash(nn.Module):
    """Row ids of the Engram tables, from compressed token ids and the three tokens before."""

    def __init__(self, cfg: Config, token_map: list[int] | None = None) -> None:
        super().__init__()
        self.cfg = cfg
        self.register_buffer(
            "token_map",
            torch.tensor(token_map or list(range(cfg.vocab_size)), dtype=torch.int64),
            persistent=False,
        )
        bound = max(1, (np.iinfo(np.int64).max // cfg.engram_compressed_vocab_size) // 2)
        mult = [
            np.random.default_rng(10007 * i).integers(
                0, bound, size=(cfg.engram_max_ngram_size,), dtype=np.int64
            )
            * 2
            + 1
            for i in cfg.engram_layer_ids
        ]
        primes = engram_primes(cfg)
        offsets = [np.cumsum([0, *p[:-1]]) for p in primes]
        self.register_buffer("mult", torch.tensor(np.array(mult)), persistent=False)
        self.register_buffer("primes", torch.tensor(primes), persistent=False)
        self.register_buffer("offsets", torch.tensor(np.array(offsets)), persistent=False)

    def forward(self, tokens: Tensor, image: Tensor, start: int) -> Tensor:
        """tokens, image [B, L] from position 0; returns ids [layers, B, L - start, columns]."""
        n, heads = self.cfg.engram_max_ngram_size, self.cfg.engram_n_heads
        ids = self.token_map[tokens].masked_fill(image, -1)
        ids = F.pad(ids, (n - 1, 0), value=-1)
        length = tokens.shape[1] - start
        pad = self.token_map[self.cfg.engram_pad_token_id]
        blocked = torch.zeros_like(ids[:, :length], dtype=torch.bool)
        rolling, out = None, []
        for back in range(n):
            src = ids[:, n - 1 - back + start : n - 1 - back + start + length]
            blocked = blocked | (src < 0)  # once the look-back hits the start or an image it stays blocked
            prod = torch.where(blocked, pad, src) * self.mult[:, back].view(-1, 1, 1)
            rolling = prod if rolling is None else rolling ^ prod
            if back:
                cols = slice((back - 1) * heads, back * heads)
                out.append(
                    rolling.unsqueeze(-1) % self.primes[:, None, None, cols] + self.offsets[:, None, None, cols]
                )
        return torch.cat(out, dim=-1)


class Table(nn.Module):
    def __init__(self, rows: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, dim) * 0.5)


def engram_gate(dot: Tensor) -> Tensor:
    """How much of a value is added: a sigmoid of the signed square root, so that large products saturate late."""
    return torch.sigmoid(torch.copysign(dot.abs().clamp(min=1e-6).sqrt(), dot))


class Engram(nn.Module):
    def __init__(self, cfg: Config, opts: Options, layer: int) -> None:
        super().__init__()
        self.cfg, self.opts = cfg, opts
        rows = cfg.engram_num_embeddings[cfg.engram_layer_ids.index(layer)]
        cols = (cfg.engram_max_ngram_size - 1) * cfg.engram_n_heads
        self.embed = Table(rows, cfg.engram_head_dim)
        self.wkv = Linear(opts, cols * cfg.engram_head_dim, (cfg.hc_mult + 1) * cfg.hidden_size, "fp8")
        self.q_weight = nn.Parameter(torch.ones(cfg.hc_mult, cfg.hidden_size))
        self.k_weight = nn.Parameter(torch.ones(cfg.hc_mult, cfg.hidden_size))

    def forward(self, x: Tensor, ids: Tensor, image: Tensor) -> Tensor:
        m, d, eps = self.cfg.hc_mult, self.cfg.hidden_size, self.cfg.rms_norm_eps
        rows = F.embedding(ids, self.embed.weight)
        if self.opts.weight_quant:
            rows = number_formats.fake_fp8(rows)
        kv = self.wkv(rows.flatten(-2).to(x.dtype)).unflatten(-1, (m + 1, d)).float()
        key, value, h = kv[..., :m, :], kv[..., m:, :], x.float()
        rstd = torch.rsqrt(h.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps)
        dot = (h * self.q_weight.float() * self.k_weight.float() * key).sum(-1) * rstd * d**-0.5
        out = (h + engram_gate(dot).unsqueeze(-1) * value).to(x.dtype)
        return torch.where(image[..., None, None], x, out)
