"""Muon for the hidden matrices, AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from training.reference import checkpoint


def orthogonalize(g: Tensor) -> Tensor:
    """Newton-Schulz iteration towards the nearest semi-orthogonal matrix; g [n, r, c]."""
    x = g.bfloat16() if g.is_cuda else g.float()
    flip = x.shape[-2] > x.shape[-1]
    x = x.mT if flip else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if flip else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum + orthogonalization for hidden matrices (2-D, or 3-D stacks of them), batched by shape."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.05
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape[-2:], []).append(p)
            for shape, ps in shapes.items():
                ups = []
                for p in ps:
                    buf = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    buf.lerp_(p.grad, 1 - group["momentum"])
                    ups.append(p.grad.lerp(buf, group["momentum"]).reshape(-1, *shape))
                flat = orthogonalize(torch.cat(ups)) * (0.2 * math.sqrt(max(shape)))
                at = 0
                for p, u in zip(ps, ups, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(flat[at : at + len(u)].view_as(p), alpha=-group["lr"])
                    at += len(u)


def optimizers(params: dict[str, torch.nn.Parameter], lr: float) -> list[torch.optim.Optimizer]:
    """One optimizer a kind of parameter; the caller steps them all."""
    hidden, other = [], []
    for name, p in params.items():
        matrix = checkpoint.storage_of(name) in ("fp8_block", "mxfp4")
        matrix = matrix or ".compressor.w" in name or ".indexer.wk" in name
        (hidden if matrix else other).append(p)
    decay = [p for p in other if p.dim() > 1]
    plain = [p for p in other if p.dim() <= 1]
    adam = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=lr, betas=(0.9, 0.95), eps=1e-10, fused=decay[0].is_cuda,
    )  # fmt: skip
    return [Muon(hidden, lr), adam]
