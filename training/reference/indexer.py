"""Indexer: scores compressed entries for each query, and the loss that teaches it to.

Index score = sum over heads of w_h * relu(q_h . k), w scaled by head_dim^-1/2 * heads^-1/2.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.reference import number_formats
from training.reference.config import Config
from training.reference.layers import Linear, Norm, rope, top_mask
from training.reference.options import Options


class Indexer(nn.Module):
    def __init__(self, cfg: Config, opts: Options, layer: int) -> None:
        super().__init__()
        self.cfg, self.opts, self.layer = cfg, opts, layer
        heads, dim = cfg.index_n_heads, cfg.index_head_dim
        self.wq_b = Linear(opts, cfg.q_lora_rank, heads * dim, "fp8")
        self.weights_proj = Linear(opts, cfg.hidden_size, heads, "bf16")
        if layer in cfg.kv_source_layer_ids:
            self.wk = Linear(opts, cfg.head_dim, dim, "bf16")
            self.k_norm = Norm(dim, cfg.rms_norm_eps)

    def keys(self, latent: Tensor, pos: Tensor, inv: Tensor) -> Tensor:
        k = rope(self.k_norm(self.wk(latent)), pos, inv)
        return number_formats.fake_mxfp4(k) if self.opts.kv_quant else k

    def scores(self, x: Tensor, qr: Tensor, keys: Tensor, pos: Tensor, inv: Tensor) -> Tensor:
        """[B, T, S] float32, not yet masked."""
        heads, dim = self.cfg.index_n_heads, self.cfg.index_head_dim
        q = rope(self.wq_b(qr).unflatten(-1, (heads, dim)), pos, inv)
        if self.opts.kv_quant:
            q = number_formats.fake_mxfp4(q)
        w = self.weights_proj(x).float() * (dim**-0.5 * heads**-0.5)
        dots = torch.einsum("bthd,bsd->bths", q, keys.to(q.dtype)).relu()
        return (w.to(dots.dtype).unsqueeze(2) @ dots).squeeze(2).float()

    def candidate_mask(self, score: Tensor, visible: Tensor) -> Tensor:
        """Best blocks by their maximum; the block of the newest visible entry is always kept."""
        size = self.cfg.candidate_block_size
        s = score.shape[-1]
        blocks = F.pad(score, (0, -s % size), value=-torch.inf).unflatten(-1, (-1, size)).amax(-1)
        newest = (visible - 1).clamp(min=0) // size  # [T]
        is_newest = torch.arange(blocks.shape[-1], device=score.device) == newest[:, None]
        blocks = torch.where(is_newest & (visible > 0)[:, None], torch.inf, blocks)
        keep = top_mask(blocks, self.cfg.candidate_topk_blocks, self.opts.exact_ties)
        return keep.repeat_interleave(size, -1)[..., :s]


def index_distillation(score: Tensor, q: Tensor, comp: Tensor, open_: Tensor, scale: float) -> Tensor:
    """KL from the head-averaged attention over compressed entries to the indexer's softmax."""
    rows = open_.any(-1)
    with torch.no_grad():
        att = torch.einsum("bthc,bsc->bhts", q, comp.to(q.dtype)).float() * scale
        target = att.masked_fill(~open_, -torch.inf).softmax(-1).mean(1)
        target = target.nan_to_num(0.0)
    logp = score.masked_fill(~open_, -1e9).log_softmax(-1)
    kl = (target * (target.clamp(min=1e-9).log() - logp)).sum(-1)
    return (kl * rows).sum() / (rows.sum() * score.shape[0]).clamp(min=1)
