"""The model against itself: how a sequence is cut into calls must not matter."""

from __future__ import annotations

import pytest
import torch

from training.reference.cache import Cache
from training.reference.generate import Sampling, generate, generate_dspark
from training.reference.model import Model
from training.reference.options import Options
from training.reference.presets import mini, tiny
from training.reference.random_weights import randomize

LENGTH = 90  # more than window, top-k and candidate blocks of both presets can show at once


def largest_difference(model: Model, tokens: torch.Tensor, cuts: list[int]) -> float:
    """Of the logits, between one call and calls of `cuts` tokens with a rollback of five at the end."""
    full, worst = model(tokens).logits, 0.0
    cache, at = Cache.new(model.cfg), 0
    for n in cuts:
        got = model(tokens[:, at : at + n], cache).logits
        worst = max(worst, float((got - full[:, at : at + n]).abs().max()))
        at += n
    cache.truncate(at - 5, model.cfg.compress_ratios)
    got = model(tokens[:, at - 5 : at + 2], cache).logits
    return max(worst, float((got - full[:, at - 5 : at + 2]).abs().max()))


@torch.no_grad()
@pytest.mark.parametrize(
    "cuts", [[LENGTH // 2] + [1] * 12, [7, 1, 1, 5, 30, 1, 6, 1]], ids=["decode", "chunks"]
)
@pytest.mark.parametrize("preset", [tiny, mini])
def test_chunks_and_decode_steps_give_the_logits_of_one_prefill(preset, cuts: list[int]) -> None:
    model = randomize(Model(preset(), Options(kv_quant=False))).eval()
    tokens = torch.randint(5, model.cfg.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    # Only the order of sums differs: logits of about 2, a dozen layers, 2^-24 each, grown by what follows.
    assert largest_difference(model, tokens, cuts) < 5e-4


@torch.no_grad()
def test_cache_rounding_moves_decode_steps_by_single_codes_only() -> None:
    model = randomize(Model(tiny(), Options())).eval()
    tokens = torch.randint(5, model.cfg.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    assert (
        largest_difference(model, tokens, [7, 1, 1, 5, 30, 1, 6, 1]) < 0.1
    )  # a last bit may flip a 4-bit code


@torch.no_grad()
def test_fused_attention_equals_the_explicit_one() -> None:
    model = randomize(Model(tiny(), Options(kv_quant=False))).eval()
    tokens = torch.randint(5, model.cfg.vocab_size, (2, 60), generator=torch.Generator().manual_seed(1))
    explicit = model(tokens).logits
    model.opts.fast_attention = True
    torch.testing.assert_close(model(tokens).logits, explicit, atol=2e-3, rtol=0)


@torch.no_grad()
def test_a_replay_of_everything_is_no_replay() -> None:
    model = randomize(Model(tiny(), Options())).eval()
    tokens = torch.randint(5, model.cfg.vocab_size, (1, 40), generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(tokens, replay=40).logits, model(tokens).logits)
    assert model(tokens, replay=7).logits.shape[1] == 7


def drafting_model() -> tuple[Model, list[int]]:
    model = randomize(Model(tiny(), Options(kv_quant=False)), 3).eval()  # no code flips between 1 row and 6
    return model, torch.randint(
        5, model.cfg.vocab_size, (30,), generator=torch.Generator().manual_seed(4)
    ).tolist()


def test_greedy_text_is_the_same_with_drafts() -> None:
    model, prompt = drafting_model()
    plain, spec = generate(model, prompt, 24), generate_dspark(model, prompt, 24)
    assert spec.tokens == plain.tokens
    for a, b in zip(plain.logits, spec.logits, strict=True):
        torch.testing.assert_close(b, a, atol=2e-3, rtol=0)


def test_drafts_cut_by_confidence_do_not_change_the_text() -> None:
    model, prompt = drafting_model()
    want = generate(model, prompt, 12).tokens
    assert generate_dspark(model, prompt, 12, threshold=0.4).tokens == want
    assert generate_dspark(model, prompt, 12, threshold=1.1).accepted == [0] * 11  # nothing is offered


def test_a_stop_token_ends_the_text_and_is_kept() -> None:
    model, prompt = drafting_model()
    text = generate(model, prompt, 24).tokens
    stop = text[7]
    for run in (generate, generate_dspark):
        assert run(model, prompt, 24, stop=(stop,)).tokens == text[: text.index(stop) + 1]


def test_sampling_repeats_with_its_seed() -> None:
    model, prompt = drafting_model()
    runs = [generate_dspark(model, prompt, 12, sampling=Sampling(1.0, 0.9, seed)).tokens for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
