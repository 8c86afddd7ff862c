"""One layer: attention and mixture of experts, each between a collapse and a spread of the streams."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from training.reference.attention import Attention
from training.reference.config import Config
from training.reference.engram import Engram
from training.reference.layers import Norm
from training.reference.moe import MoE
from training.reference.options import Options
from training.reference.streams import hc_collapse, hc_mixes, hc_spread


class Block(nn.Module):
    def __init__(self, cfg: Config, opts: Options, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer = cfg, layer
        m, d = cfg.hc_mult, cfg.hidden_size
        self.attn_norm, self.ffn_norm = Norm(d, cfg.rms_norm_eps), Norm(d, cfg.rms_norm_eps)
        self.attn, self.ffn = Attention(cfg, opts, layer), MoE(cfg, opts, layer)
        if layer in cfg.engram_layer_ids:
            self.engram = Engram(cfg, opts, layer)
        for site in ("attn", "ffn"):
            base = torch.cat((torch.full((m,), -3.0), torch.zeros(m), (torch.eye(m) * 6 - 3).flatten()))
            base[layer % m] = 3.0
            setattr(self, f"hc_{site}_base", nn.Parameter(base))
            setattr(self, f"hc_{site}_fn", nn.Parameter(torch.zeros((2 + m) * m, m * d)))
            setattr(self, f"hc_{site}_scale", nn.Parameter(torch.full((3,), 0.1)))

    def mixes(self, site: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return hc_mixes(
            self.cfg,
            x,
            getattr(self, f"hc_{site}_fn"),
            getattr(self, f"hc_{site}_scale"),
            getattr(self, f"hc_{site}_base"),
        )

    def run(
        self, x: Tensor, pre: Tensor, attend: Callable[[Tensor], Tensor], image: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Each sub-layer reads the streams through the mix that the previous sub-layer computed."""
        attn_pre, post, comb = self.mixes("attn", x)
        y = attend(self.attn_norm(hc_collapse(x, pre)))
        x = hc_spread(y, x, post, comb)
        ffn_pre, post, comb = self.mixes("ffn", x)
        y = self.ffn(self.ffn_norm(hc_collapse(x, attn_pre)), image)
        return hc_spread(y, x, post, comb), ffn_pre
