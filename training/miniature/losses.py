"""What the backbone and the draft stages are trained on."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.miniature.batches import answer_mask
from training.reference.model import Model
from training.reference.moe import MoE


def backbone_loss(model: Model, ids: Tensor, index_weight: float) -> tuple[Tensor, dict[str, Tensor]]:
    out = model(ids[:, :-1])
    ce = F.cross_entropy(out.logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(ids[:, 1:])
    ans = answer_mask(ids[:, :-1])
    w = torch.where(ans, 1.0, 0.2)
    loss = (ce * w).sum() / w.sum()
    stats = {"answer": ((ce * ans).sum() / ans.sum()).detach(), "all": ce.mean().detach()}
    if out.index_loss is not None:
        loss = loss + index_weight * out.index_loss
        stats["index"] = out.index_loss.detach()
    return loss, stats


def draft_anchors(ids: Tensor, block: int, count: int) -> Tensor:
    """[B, count] random positions, mostly before assistant tokens: the last one the main model has seen."""
    weight = answer_mask(ids[:, :-1])[:, 1 : ids.shape[1] - 1 - block].float() + 1e-2
    return torch.multinomial(weight, count)


def draft_loss(model: Model, ids: Tensor, p: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    cfg, n, anchors = model.cfg, model.cfg.dspark_block_size, p.shape[1]
    with torch.no_grad():
        out = model(ids[:, :-1])
        t = ids.shape[1] - 1
        slot = p[..., None] + 1 + torch.arange(n, device=ids.device)  # [B, A, n] positions of the block
        teacher = (
            out.logits.gather(1, slot.flatten(1)[..., None].expand(-1, -1, cfg.vocab_size))
            .unflatten(1, (anchors, n))
            .log_softmax(-1)
        )
        prev = ids.gather(1, slot.flatten(1)).view_as(slot)
    pos = torch.arange(t, device=ids.device)
    hidden = model.draft_hidden(prev[..., 0], p, model.draft_context(out.main_hidden, pos), pos)
    bias, emb = model.markov_bias(prev)
    logp = (model.logits(hidden, model.mtp[-1].norm) + bias).log_softmax(-1)
    decay = 0.8 ** torch.arange(n, device=ids.device)
    kl = (teacher.exp() * (teacher - logp)).sum(-1)
    with torch.no_grad():
        accept = torch.minimum(teacher.exp(), logp.exp()).sum(-1)
        same = (teacher.argmax(-1) == logp.argmax(-1)).float()
        run = same.cumprod(-1).sum(-1).mean()
    conf = F.binary_cross_entropy_with_logits(model.confidence(hidden.detach(), emb.detach()), accept)
    loss = (kl * decay).mean() + 0.2 * conf
    return loss, {"kl": kl.mean().detach(), "accept": accept.mean(), "greedy_run": run, "conf": conf.detach()}


@torch.no_grad()
def balance(moes: list[MoE], rate: float) -> None:
    """noaux_tc: push the selection bias of each expert against its load."""
    for moe in moes:
        load = moe.load.float()
        moe.gate.bias.add_(rate * (load.mean() - load).sign())
        moe.gate.bias.sub_(moe.gate.bias.mean())
        moe.gate.bias_vl.copy_(moe.gate.bias)
