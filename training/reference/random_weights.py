"""Random weights that exercise every path: non-zero biases and sinks, dynamic mixes."""

from __future__ import annotations

import torch

from training.reference.model import Model


def randomize(model: Model, seed: int = 0) -> Model:
    """Random weights that exercise every path (non-zero biases, sinks, dynamic mixes)."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if name.endswith("norm.weight") or name.endswith(("q_weight", "k_weight")):
                p.copy_(1 + 0.1 * r)
            elif name.endswith(("_fn",)):
                p.copy_(0.02 * r)
            elif name.endswith("_scale"):
                p.copy_(0.5 + 0.1 * r)
            elif name.endswith("_base"):
                p.add_(0.3 * r)
            elif name.endswith(("gate.bias", "gate.bias_vl")):
                p.copy_(0.05 * r)
            elif name.endswith("attn_sink"):
                p.copy_(0.5 * r)
            elif name.endswith("engram.embed.weight") or name == "embed.weight":
                p.copy_(r)
            else:
                p.copy_(r * p.shape[-1] ** -0.5)
    return model
