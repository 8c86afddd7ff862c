"""Training on one small batch: the loss falls, every parameter learns, and only those meant to."""

from __future__ import annotations

import pytest
import torch

from training.miniature.batches import ASST, BOS, EOS, USER, answer_mask
from training.miniature.losses import backbone_loss, balance, draft_anchors, draft_loss
from training.miniature.optimizers import optimizers, orthogonalize
from training.miniature.train import learning_rate
from training.reference.model import Model
from training.reference.options import Options
from training.reference.presets import tiny

STEPS = 40


def batch() -> torch.Tensor:
    ids = torch.randint(30, 60, (2, 49), generator=torch.Generator().manual_seed(0)).cumsum(0) % 512
    ids[:, 4] = ASST  # so that answer positions exist
    return ids


def train(model: Model, ids: torch.Tensor, draft: bool) -> list[float]:
    params = {
        n: p for n, p in model.named_parameters() if n.startswith("mtp.") == draft and ".gate.bias" not in n
    }
    for n, p in model.named_parameters():
        p.requires_grad_(n in params)
    model.opts.index_loss = not draft
    opts, losses = optimizers(params, 2e-3), []
    for step in range(STEPS):
        model.opts.sparse = draft or step > 5
        if draft:
            loss, _ = draft_loss(model, ids, draft_anchors(ids, model.cfg.dspark_block_size, 4))
        else:
            loss, _ = backbone_loss(model, ids, 0.3)
        loss.backward()
        assert not [n for n, p in params.items() if p.grad is None]
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    return losses


@pytest.fixture(scope="module")
def trained() -> tuple[Model, list[float]]:
    torch.manual_seed(0)
    model = Model(tiny(), Options(weight_quant=True, index_loss=True, exact_ties=False))
    return model, train(model, batch(), draft=False)


def test_the_loss_of_the_backbone_falls(trained: tuple[Model, list[float]]) -> None:
    _, losses = trained
    assert losses[-1] < 0.7 * losses[0]


def test_the_loss_of_the_draft_stages_falls_and_the_backbone_stays(trained: tuple[Model, list[float]]) -> None:
    model, _ = trained
    before = {n: p.detach().clone() for n, p in model.named_parameters() if not n.startswith("mtp.")}
    losses = train(model, batch(), draft=True)
    assert losses[-1] < 0.7 * losses[0]
    for name, p in model.named_parameters():
        assert name not in before or torch.equal(p, before[name])


def test_only_answers_and_their_end_are_answer_positions() -> None:
    ids = torch.tensor([[BOS, USER, 30, ASST, 31, 32, EOS, USER, 33, ASST, 34]])
    #                          next token: 30 ASST 31  32 EOS USER ...
    want = [False, False, False, True, True, True, False, False, False, True, True]
    assert answer_mask(ids).tolist() == [want]


def test_an_overloaded_expert_becomes_less_likely(trained: tuple[Model, list[float]]) -> None:
    moe = trained[0].layers[0].ffn
    moe.load = torch.tensor([9, 1, 1, 1, 1, 1, 1, 1])
    before = moe.gate.bias.clone()
    balance([moe], 0.01)
    change = moe.gate.bias - before + before.mean()  # the mean is taken out: only differences choose experts
    assert change[0] < change[1:].min()
    assert torch.equal(moe.gate.bias, moe.gate.bias_vl)


def test_orthogonalized_updates_have_singular_values_near_one() -> None:
    g = torch.randn(2, 24, 16, generator=torch.Generator().manual_seed(3))
    values = torch.linalg.svdvals(orthogonalize(g))
    assert values.min() > 0.5  # five steps of this polynomial end between 0.68 and 1.13, small values below
    assert values.max() < 1.3


def test_the_learning_rate_rises_falls_and_ends_at_three_percent() -> None:
    assert learning_rate(1.0, 0, 0.0) == pytest.approx(0.01)
    assert learning_rate(1.0, 99, 0.0) == pytest.approx(1.0)
    assert learning_rate(1.0, 500, 0.5) == pytest.approx(0.515)
    assert learning_rate(1.0, 500, 1.0) == pytest.approx(0.03)
