"""Mixture of experts: gate, routed experts (MXFP4 in the checkpoint) and the shared expert."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.reference import number_formats
from training.reference.config import Config
from training.reference.layers import Linear, swiglu, top_mask
from training.reference.options import Options


class Expert(nn.Module):
    def __init__(self, cfg: Config, opts: Options) -> None:
        super().__init__()
        d, i = cfg.hidden_size, cfg.moe_intermediate_size * cfg.n_shared_experts
        self.limit = cfg.swiglu_limit
        self.w1, self.w2, self.w3 = (
            Linear(opts, d, i, "fp8"),
            Linear(opts, i, d, "fp8"),
            Linear(opts, d, i, "fp8"),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(swiglu(self.w1(x), self.w3(x), self.limit).to(x.dtype))


class Gate(nn.Module):
    def __init__(self, cfg: Config, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, cfg.hidden_size) * cfg.hidden_size**-0.5)
        self.bias = nn.Parameter(torch.zeros(experts), requires_grad=False)
        self.bias_vl = nn.Parameter(torch.zeros(experts), requires_grad=False)


class RoutedExperts(nn.Module):
    """All routed experts stacked: w1, w3 [E, I, D] and w2 [E, D, I] (MXFP4 in the checkpoint)."""

    def __init__(self, cfg: Config, experts: int) -> None:
        super().__init__()
        d, i = cfg.hidden_size, cfg.moe_intermediate_size
        self.w1 = nn.Parameter(torch.randn(experts, i, d) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, d, i) * i**-0.5)
        self.w3 = nn.Parameter(torch.randn(experts, i, d) * d**-0.5)


class MoE(nn.Module):
    def __init__(self, cfg: Config, opts: Options, layer: int) -> None:
        super().__init__()
        self.cfg, self.opts = cfg, opts
        n, self.topk = cfg.experts_of(layer)
        self.gate = Gate(cfg, n)
        self.experts = RoutedExperts(cfg, n)
        self.shared_experts = Expert(cfg, opts)
        self.load: Tensor | None = None  # expert usage of the last forward, for bias balancing

    def route(self, x: Tensor, image: Tensor | None) -> Tensor:
        """Combine weights [N, E], zero for experts that were not chosen."""
        score = F.softplus(F.linear(x.float(), self.gate.weight.float())).sqrt()
        bias = self.gate.bias
        if image is not None:
            bias = torch.where(image.flatten()[:, None], self.gate.bias_vl, bias)
        chosen = top_mask((score + bias).detach(), self.topk, True)
        self.load = chosen.detach().sum(0)
        w = score * chosen
        return w / (w.sum(-1, keepdim=True) + 1e-20) * self.cfg.routed_scaling_factor

    def forward(self, x: Tensor, image: Tensor | None = None) -> Tensor:
        shape, dt = x.shape, self.opts.dtype
        x = x.flatten(0, -2)
        w = self.route(x, image)
        e = self.experts
        w1, w2, w3 = (number_formats.fake_mxfp4(p) if self.opts.weight_quant else p for p in (e.w1, e.w2, e.w3))
        n, inner = w1.shape[0], w1.shape[1]
        xq = (number_formats.fake_fp8(x) if self.opts.act_quant else x).to(dt)
        # Every expert runs on every token and unchosen ones get weight zero: exact, loop-free, and
        # cheap for the small expert counts this reference is meant for.
        a = swiglu(
            F.linear(xq, w1.flatten(0, 1).to(dt)), F.linear(xq, w3.flatten(0, 1).to(dt)), self.cfg.swiglu_limit
        )
        a = (a.unflatten(-1, (n, inner)) * w.unsqueeze(-1)).flatten(-2).to(x.dtype)
        if self.opts.act_quant:
            a = number_formats.fake_fp8(a)
        routed = F.linear(a.to(dt), w2.transpose(0, 1).flatten(1).to(dt))
        return (routed.float() + self.shared_experts(x).float()).to(x.dtype).view(shape)
