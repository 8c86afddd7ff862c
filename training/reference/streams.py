"""Hyper-connections (mHC): the residual path is M streams, mixed anew around every sub-layer.

Shapes: B batch, T tokens, M streams, D hidden size. Mixes are float32 whatever the streams are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.reference.config import Config


def hc_mixes(cfg: Config, x: Tensor, fn: Tensor, scale: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Streams x [B, T, M, D] -> pre [B, T, M], post [B, T, M], comb [B, T, M, M], all float32."""
    m = cfg.hc_mult
    flat = x.flatten(-2).float()
    w = F.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + cfg.rms_norm_eps)
    pre = torch.sigmoid(w[..., :m] * scale[0] + base[:m]) + cfg.hc_eps
    post = 2 * torch.sigmoid(w[..., m : 2 * m] * scale[1] + base[m : 2 * m])
    comb = (w[..., 2 * m :] * scale[2] + base[2 * m :]).unflatten(-1, (m, m))
    return pre, post, sinkhorn(comb, cfg.hc_sinkhorn_iters, cfg.hc_eps)


def sinkhorn(comb: Tensor, iters: int, eps: float) -> Tensor:
    """Row softmax, then alternating column and row normalization, ending on columns."""
    comb = comb.softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iters - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def hc_collapse(x: Tensor, pre: Tensor) -> Tensor:
    """Weighted sum of the streams: [B, T, M, D] -> [B, T, D]."""
    return (x.float() * pre.unsqueeze(-1)).sum(-2).to(x.dtype)


def hc_spread(y: Tensor, x: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """new_stream[n] = post[n] * y + sum_m comb[m, n] * stream[m]."""
    mixed = torch.einsum("btmn,btmd->btnd", comb, x.float())
    return (post.unsqueeze(-1) * y.float().unsqueeze(-2) + mixed).to(x.dtype)
