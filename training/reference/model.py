"""Text model of DeepSeek-V4.1-Flash in plain PyTorch.

Shapes use B batch, T new tokens, H heads, D hidden size, C head_dim, S compressed entries and M
hyper-connection streams. Module attribute names follow the tensor names of the checkpoint, so
state_dict keys are those names (only the routed experts are stacked, see checkpoint.py).

One code path serves training, prefill, chunked prefill, decode and draft verification: a forward
call appends T tokens at position `cache.length`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.reference.block import Block
from training.reference.cache import Cache, Shared, append
from training.reference.config import Config
from training.reference.draft import DraftStage
from training.reference.engram import NgramHash
from training.reference.layers import Linear, Norm
from training.reference.options import Options
from training.reference.streams import hc_collapse


@dataclass
class Output:
    logits: Tensor  # [B, T', V]; T' < T only under decoder replay
    main_hidden: Tensor  # [B, T', targets * D], input of the draft context projection
    index_loss: Tensor | None
    trace: dict[str, Tensor]


class Model(nn.Module):
    def __init__(self, cfg: Config, opts: Options | None = None, token_map: list[int] | None = None) -> None:
        super().__init__()
        self.cfg, self.opts = cfg.validate(), opts or Options()
        self.embed = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.layers = nn.ModuleList(Block(cfg, self.opts, i) for i in range(cfg.n_layers))
        self.norm = Norm(cfg.hidden_size, cfg.rms_norm_eps)
        self.head = Linear(self.opts, cfg.hidden_size, cfg.vocab_size, "bf16")
        self.mtp = nn.ModuleList(DraftStage(cfg, self.opts, i) for i in range(cfg.num_nextn_predict_layers))
        self.ngram = NgramHash(cfg, token_map) if cfg.engram_layer_ids else None

    def streams(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding copied into M streams, and the initial mix that reads stream 0 only."""
        m = self.cfg.hc_mult
        embedded = F.embedding(tokens, self.embed.weight).to(self.opts.dtype)
        x = embedded.unsqueeze(-2).expand(*tokens.shape, m, -1)
        pre = torch.zeros(*tokens.shape, m, device=tokens.device)
        pre[..., 0].fill_(1)
        return x, pre

    def logits(self, x: Tensor, norm: Norm) -> Tensor:
        return self.head(norm(x), torch.float32)

    def forward(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        *,
        image: Tensor | None = None,
        replay: int | None = None,
        trace_layers: tuple[int, ...] = (),
    ) -> Output:
        """Append tokens [B, T]. `replay` = n runs the decoder half on the last n positions only."""
        cfg = self.cfg
        cache = cache if cache is not None else Cache.new(cfg)
        b, t = tokens.shape
        start = cache.length
        route_image = image
        image = image if image is not None else torch.zeros_like(tokens, dtype=torch.bool)
        cache.tokens, cache.image = append(cache.tokens, tokens), append(cache.image, image)
        cache.length += t
        first, pos = start, start + torch.arange(t, device=tokens.device)
        sh = Shared(trace={} if trace_layers else None)
        ids = self.ngram(cache.tokens, cache.image, start) if self.ngram is not None else None

        x, pre = self.streams(tokens)
        mains: list[Tensor] = []
        for i, block in enumerate(self.layers):
            full_x = None
            if replay is not None and i == cfg.n_encoder_layers and replay < t:
                # Every row feeds the decoder's KV source; only the last rows go on.
                full_x = block.attn_norm(hc_collapse(x, pre))
                x, pre, pos, image = x[:, -replay:], pre[:, -replay:], pos[-replay:], image[:, -replay:]
                first += t - replay
                route_image = image if route_image is not None else None
            if hasattr(block, "engram"):
                x = block.engram(x, ids[cfg.engram_layer_ids.index(i)], image)
            if i in cfg.dspark_target_layer_ids:
                mains.append(x.float().mean(-2).to(x.dtype))
            attend = partial(block.attn, pos=pos, first=first, cache=cache.layers[i], sh=sh, full_x=full_x)
            x, pre = block.run(x, pre, attend, route_image)
            if i in trace_layers:
                sh.trace[f"layers.{i}.streams"] = x
        hidden = hc_collapse(x, pre)
        loss = torch.stack(sh.index_losses).mean() if sh.index_losses else None
        main = torch.cat(mains, dim=-1) if mains else x.new_zeros(b, x.shape[1], 0)
        return Output(self.logits(hidden, self.norm), main, loss, sh.trace or {})

    # ------------------------------------------------------------------ DSpark
    def draft_context(self, main_hidden: Tensor, pos: Tensor) -> list[Tensor]:
        """Window rows [B, T, C] that each draft stage keeps for committed positions."""
        first = self.mtp[0]
        x = first.main_norm(first.main_proj(main_hidden))
        return [stage.attn.window_rows(x, pos) for stage in self.mtp]

    def extend_draft_cache(self, cache: Cache, main_hidden: Tensor, start: int) -> None:
        pos = start + torch.arange(main_hidden.shape[1], device=main_hidden.device)
        for layer, rows in zip(cache.draft, self.draft_context(main_hidden, pos), strict=True):
            if layer.window is None:
                layer.window_start = start
            layer.window = append(layer.window, rows)

    def draft_hidden(
        self, anchors: Tensor, anchor_pos: Tensor, context: list[Tensor], context_pos: Tensor
    ) -> Tensor:
        """Draft blocks for A anchors per sequence.

        anchors [B, A]: the newest known token, which sits at position anchor_pos + 1 and has not
        been through the main model; anchor_pos [B, A]: the last position that has. Context rows
        (anchor_pos - W, anchor_pos] are visible, and all rows of the own block in both directions.
        Returns the collapsed, un-normed hidden [B, A, block, D].
        """
        cfg, (b, a), n = self.cfg, anchors.shape, self.cfg.dspark_block_size
        tokens = anchors.new_full((b, a, n), cfg.dspark_noise_token_id)
        tokens[..., 0] = anchors
        x, pre = self.streams(tokens.flatten(1))
        pos = (anchor_pos[..., None] + 1 + torch.arange(n, device=anchors.device)).flatten(1)
        last = anchor_pos.repeat_interleave(n, 1)[..., None]  # [B, A*n, 1]
        ctx = (context_pos <= last) & (context_pos > last - cfg.sliding_window)
        own = torch.arange(a, device=anchors.device).repeat_interleave(n)
        block = (own[:, None] == own).expand(b, -1, -1)
        mask = torch.cat((ctx, block), dim=-1)
        for stage, rows in zip(self.mtp, context, strict=True):

            def attend(y: Tensor, at=stage.attn, rows=rows) -> Tensor:
                q, _ = at.queries(y, pos)
                return at.project_out(at.attend(q, torch.cat((rows, at.window_rows(y, pos)), dim=1), mask), pos)

            x, pre = stage.run(x, pre, attend)
        return hc_collapse(x, pre).unflatten(1, (a, n))

    def markov_bias(self, previous: Tensor) -> tuple[Tensor, Tensor]:
        head = self.mtp[-1].markov_head
        e = F.embedding(previous, head.embed.weight)
        return head.head(e, torch.float32), e

    def confidence(self, hidden: Tensor, markov: Tensor) -> Tensor:
        """Logit of the acceptance probability; apply a sigmoid to get the probability."""
        return (
            self.mtp[-1]
            .confidence_head.proj(torch.cat((hidden.float(), markov.float()), dim=-1), torch.float32)
            .squeeze(-1)
        )
