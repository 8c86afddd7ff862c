"""The trained miniature answers held-out prompts as its card says."""

from __future__ import annotations

from training.miniature.evaluate import exact_match
from training.reference.generate import generate, generate_dspark
from training.reference.model import Model


def test_one_prompt_of_each_task_is_answered_exactly(miniature: Model, held_out: list[dict]) -> None:
    # Lines divisible by 40 are the first of each task; the card promises those divisible by 5.
    cases = held_out[::40]
    assert len({c["task"] for c in cases}) == 10
    assert set(exact_match(miniature, cases, batch=4).values()) == {1.0}


def test_text_and_drafts_agree_on_short_prompts(miniature: Model, held_out: list[dict]) -> None:
    short = sorted(held_out[::5], key=lambda c: len(c["prompt_ids"]) + 4 * len(c["completion_ids"]))[:4]
    stop, accepted = (miniature.cfg.eos_token_id,), []
    for case in short:
        plain = generate(miniature, case["prompt_ids"], 60, stop=stop)
        spec = generate_dspark(miniature, case["prompt_ids"], 60, stop=stop)
        assert plain.tokens == spec.tokens == case["completion_ids"]
        accepted += spec.accepted
    assert sum(accepted) / len(accepted) > 3  # of 5; the card says 4.7 over all tasks
