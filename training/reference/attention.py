"""Attention over a sliding window and the selected compressed entries of the layer's KV source.

Keys are values: one shared row of `head_dim` per position. A query at position p sees the window
rows (p - W, p] and the selected ones of the first (p + 1) // ratio entries; a token may be seen
through both, and both count. The sink joins the softmax denominator only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.reference import number_formats
from training.reference.cache import LayerCache, Shared, append
from training.reference.compressor import Compressor
from training.reference.config import Config
from training.reference.indexer import Indexer, index_distillation
from training.reference.layers import Linear, Norm, rope, rope_frequencies, top_mask
from training.reference.options import Options


class Attention(nn.Module):
    def __init__(self, cfg: Config, opts: Options, layer: int) -> None:
        super().__init__()
        self.cfg, self.opts, self.layer, self.ratio = cfg, opts, layer, cfg.compress_ratios[layer]
        d, c, h = cfg.hidden_size, cfg.head_dim, cfg.num_attention_heads
        self.attn_sink = nn.Parameter(torch.zeros(h))
        self.wq_a = Linear(opts, d, cfg.q_lora_rank, "fp8")
        self.q_norm = Norm(cfg.q_lora_rank, cfg.rms_norm_eps)
        self.wq_b = Linear(opts, cfg.q_lora_rank, h * c, "fp8")
        self.wkv = Linear(opts, d, c, "fp8")
        self.kv_norm = Norm(c, cfg.rms_norm_eps)
        self.wo_a = Linear(opts, h * c // cfg.o_groups, cfg.o_groups * cfg.o_lora_rank, "fp8")
        self.wo_b = Linear(opts, cfg.o_groups * cfg.o_lora_rank, d, "fp8")
        backbone = layer < cfg.n_layers
        if backbone and layer in cfg.kv_source_layer_ids:
            self.compressor = Compressor(cfg, opts, self.ratio)
        if backbone and layer in cfg.index_source_layer_ids:
            self.indexer = Indexer(cfg, opts, layer)
        self.register_buffer("inv_freq", rope_frequencies(cfg, self.ratio > 0), persistent=False)

    # --- pieces shared with the draft stages
    def queries(self, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        qr = self.q_norm(self.wq_a(x))
        q = self.wq_b(qr).unflatten(-1, (self.cfg.num_attention_heads, self.cfg.head_dim))
        return rope(q, pos, self.inv_freq), qr

    def window_rows(self, x: Tensor, pos: Tensor) -> Tensor:
        kv = rope(self.kv_norm(self.wkv(x)), pos, self.inv_freq)
        return number_formats.fake_fp8(kv) if self.opts.kv_quant else kv

    def attend(self, q: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """q [B, T, H, C], keys = values [B, K, C], mask [B or 1, T, K] -> [B, T, H, C]."""
        scale = self.cfg.head_dim**-0.5
        if self.opts.fast_attention:
            return self._attend_fused(q, keys, mask, scale)
        logits = torch.einsum("bthc,bkc->bthk", q.float(), keys.float()) * scale
        logits = logits.masked_fill(~mask.unsqueeze(2), -torch.inf)
        sink = self.attn_sink.view(1, 1, -1, 1).expand(*logits.shape[:3], 1)
        p = torch.cat((logits, sink), dim=-1).softmax(-1)[..., :-1]
        return torch.einsum("bthk,bkc->bthc", p, keys.float()).to(q.dtype)

    def _attend_fused(self, q: Tensor, keys: Tensor, mask: Tensor, scale: float) -> Tensor:
        # The sink becomes one more key whose logit is the sink value and whose value row is zero.
        b, t, h, c = q.shape
        extra = (self.attn_sink / scale).to(q.dtype).view(1, 1, h, 1).expand(b, t, h, 1)
        q2 = F.pad(torch.cat((q, extra), -1), (0, 7)).transpose(1, 2)
        k2 = F.pad(keys, (0, 8, 0, 8))
        row = torch.zeros_like(k2[0])
        row[-8, c].fill_(1)
        k2 = (k2 + row).unsqueeze(1).expand(b, h, -1, -1)
        v2 = F.pad(keys, (0, 0, 0, 8)).unsqueeze(1).expand(b, h, -1, -1)
        m2 = F.pad(mask, (0, 8))
        m2[..., -8].fill_(True)
        bias = torch.zeros_like(m2, dtype=q.dtype).masked_fill_(~m2, -torch.inf)
        out = F.scaled_dot_product_attention(
            q2, k2, v2, attn_mask=bias.unsqueeze(1).expand(b, h, -1, -1), scale=scale
        )
        return out.transpose(1, 2)

    def project_out(self, o: Tensor, pos: Tensor) -> Tensor:
        cfg = self.cfg
        o = rope(o, pos, self.inv_freq, inverse=True).flatten(2).unflatten(-1, (cfg.o_groups, -1))
        if self.opts.act_quant and self.opts.wo_a_act_quant:
            o = number_formats.fake_fp8(o)
        wa = self.wo_a.effective_weight().to(o.dtype).unflatten(0, (cfg.o_groups, cfg.o_lora_rank))
        return self.wo_b(torch.einsum("btgd,grd->btgr", o, wa).flatten(2))

    # --- backbone
    def store_compressed(self, x: Tensor, cache: LayerCache) -> None:
        """KV source: append the compressed rows and index keys that x completes."""
        first = 0 if cache.comp is None else cache.comp.shape[1]
        latent = self.compressor(x, cache)
        pos = (first + torch.arange(latent.shape[1], device=x.device)) * self.ratio
        rows = rope(latent, pos, self.inv_freq)
        cache.comp = append(cache.comp, number_formats.fake_kv_fp4(rows) if self.opts.kv_quant else rows)
        # The index keys come from the un-rotated, un-quantized latent. Their training signal must
        # not move the latent itself.
        cache.ikey = append(
            cache.ikey,
            self.indexer.keys(latent.detach() if self.opts.index_loss else latent, pos, self.inv_freq),
        )

    def select(self, x: Tensor, qr: Tensor, q: Tensor, pos: Tensor, sh: Shared) -> None:
        visible = (pos + 1) // self.ratio  # [T] entries each query may see
        keys = sh.kv.ikey
        open_ = torch.arange(keys.shape[1], device=x.device) < visible[:, None]  # [T, S]
        train = self.opts.index_loss and torch.is_grad_enabled()
        if train:
            rows = max(x.shape[0] // 4, 1)  # the loss needs only part of the batch
            part = self.indexer.scores(x[:rows].detach(), qr[:rows].detach(), keys[:rows], pos, self.inv_freq)
            sh.index_losses.append(
                index_distillation(part, q[:rows], sh.kv.comp[:rows], open_, self.cfg.head_dim**-0.5)
            )
        if not self.opts.sparse:
            sh.selected = open_.expand(x.shape[0], -1, -1)
            return
        with torch.no_grad():
            score = self.indexer.scores(x, qr, keys, pos, self.inv_freq).masked_fill(~open_, -torch.inf)
            source = self.cfg.candidate_source_layer_id
            if self.layer == source:
                sh.candidates = self.indexer.candidate_mask(score, visible)
            elif 0 <= source < self.layer and sh.candidates is not None:
                score = score.masked_fill(~sh.candidates, -torch.inf)
            sh.selected = top_mask(score, self.cfg.index_topk, self.opts.exact_ties)
        if sh.trace is not None:
            sh.trace[f"layers.{self.layer}.index_score"] = score
            sh.trace[f"layers.{self.layer}.selected"] = sh.selected

    def forward(
        self, x: Tensor, pos: Tensor, first: int, cache: LayerCache, sh: Shared, full_x: Tensor | None = None
    ) -> Tensor:
        """pos [T] = first, first + 1, ... `full_x` (decoder replay only) holds the inputs of all rows, x those of the last ones."""
        q, qr = self.queries(x, pos)
        if cache.window is None:
            cache.window_start = first
        cache.window = append(cache.window, self.window_rows(x, pos))
        kpos = cache.window_start + torch.arange(cache.window.shape[1], device=x.device)
        gap = pos[:, None] - kpos
        mask = ((gap >= 0) & (gap < self.cfg.sliding_window)).unsqueeze(0)
        keys = cache.window
        if self.ratio:
            if hasattr(self, "compressor"):
                self.store_compressed(x if full_x is None else full_x, cache)
                sh.kv = cache
            if hasattr(self, "indexer"):
                self.select(x, qr, q, pos, sh)
            keys = torch.cat((keys, sh.kv.comp.to(keys.dtype)), dim=1)
            mask = torch.cat((mask.expand(x.shape[0], -1, -1), sh.selected), dim=-1)
        return self.project_out(self.attend(q, keys, mask), pos)
