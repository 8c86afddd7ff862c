"""Small pieces that every part of the network shares: norm, linear map, rotation, top-k, SwiGLU."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.reference import number_formats
from training.reference.config import Config
from training.reference.options import Options


def rms_norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Linear(nn.Module):
    """Bias-free linear map; `kind` names the storage format: fp8 or bf16."""

    def __init__(self, opts: Options, fan_in: int, fan_out: int, kind: str) -> None:
        super().__init__()
        self.opts, self.kind = opts, kind
        self.weight = nn.Parameter(torch.randn(fan_out, fan_in) * fan_in**-0.5)

    def effective_weight(self) -> Tensor:
        if self.opts.weight_quant and self.kind == "fp8":
            return number_formats.fake_fp8_block(self.weight)
        return self.weight

    def forward(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.opts.dtype
        if self.opts.act_quant and self.kind == "fp8":
            x = number_formats.fake_fp8(x)
        return F.linear(x.to(dtype), self.effective_weight().to(dtype))


def rope_frequencies(cfg: Config, compressed: bool) -> Tensor:
    """Inverse frequencies [rope_dim/2]. Window-only layers: plain theta. Others: compress theta + YaRN."""
    dim = cfg.qk_rope_head_dim
    base = cfg.compress_rope_theta if compressed else cfg.rope_theta
    inv = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    ys = cfg.rope_scaling
    if not compressed or not ys or ys["factor"] <= 1:
        return inv

    def turn_dim(turns: float) -> float:
        return (
            dim
            * math.log(ys["original_max_position_embeddings"] / (turns * 2 * math.pi))
            / (2 * math.log(base))
        )

    low = max(math.floor(turn_dim(ys["beta_fast"])), 0)
    high = min(math.ceil(turn_dim(ys["beta_slow"])), dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return inv / ys["factor"] * ramp + inv * (1 - ramp)


def rope(x: Tensor, pos: Tensor, inv: Tensor, inverse: bool = False) -> Tensor:
    """Rotate the trailing 2*len(inv) channels of x [B, T, ..., C]; channel pairs are adjacent."""
    rd = 2 * inv.numel()
    angle = pos.float()[..., None] * inv  # [T, rd/2] or [B, T, rd/2]
    cos, sin = angle.cos(), angle.sin()
    if inverse:
        sin = -sin
    for _ in range(x.dim() - 3):
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    tail = x[..., -rd:].float()
    a, b = tail[..., 0::2], tail[..., 1::2]
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    return torch.cat((x[..., :-rd], turned.to(x.dtype)), dim=-1)


def top_mask(score: Tensor, k: int, exact: bool) -> Tensor:
    """Boolean mask of the k largest finite-or-+inf entries of each row; -inf never selected."""
    ok = score > -torch.inf
    if k >= score.shape[-1]:
        return ok
    if exact:
        idx = score.sort(dim=-1, descending=True, stable=True).indices[..., :k]
        return torch.zeros_like(ok).scatter_(-1, idx, True) & ok
    return (score >= score.topk(k, dim=-1, sorted=False).values.amin(-1, keepdim=True)) & ok


def swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    gate, up = gate.float(), up.float()
    if limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return F.silu(gate) * up
