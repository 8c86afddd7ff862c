"""The golden vectors beside the repository are what this code writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from training.golden.cases import prefill_and_decode, use
from training.golden.quantizers import quant_vectors
from training.reference import checkpoint
from training.reference.generate import generate, generate_dspark
from training.reference.model import Model
from training.reference.tensorfile import load_file


@pytest.fixture(scope="module")
def tiny_model(golden_folder: Path) -> Model:
    return checkpoint.load(golden_folder / "tiny").eval()


def recompute(model: Model, want: dict[str, Tensor], mode: str, **kw) -> dict[str, Tensor]:
    use(model, mode)
    got, _ = prefill_and_decode(model, want["input_ids"].long(), want["decode_ids"][0].tolist(), **kw)
    return got


@pytest.mark.parametrize(("name", "replay"), [("full_f32_noquant", None), ("replay_f32_noquant", 16)])
def test_a_case_without_rounding_is_met(
    golden_folder: Path, tiny_model: Model, name: str, replay: int | None
) -> None:
    want = load_file(golden_folder / f"{name}.safetensors")
    got = recompute(tiny_model, want, "f32_noquant", replay=replay)
    for key, value in want.items():
        if value.is_floating_point():
            # The order of sums differs between processors; values here reach about ten.
            torch.testing.assert_close(
                got[key], value, atol=1e-5 * max(1.0, float(value.abs().max())), rtol=0, msg=key
            )
        else:
            assert torch.equal(got[key], value), key


def test_the_case_with_images_is_met(golden_folder: Path, tiny_model: Model) -> None:
    want = load_file(golden_folder / "image_f32.safetensors")
    got = recompute(tiny_model, want, "f32", image=want["image_mask"].bool())
    assert torch.equal(got["layers.1.engram_rows"], want["layers.1.engram_rows"])
    off = (got["logits"] - want["logits"]).abs().amax(-1)
    assert (off < 1e-3).float().mean() >= 0.95  # a last bit may flip a code or a choice in the other rows


def test_drafts_and_text_of_the_draft_case_are_met(golden_folder: Path, tiny_model: Model) -> None:
    case = next(
        c for c in json.loads((golden_folder / "cases.json").read_text())["cases"] if c["kind"] == "dspark"
    )
    prompt = load_file(golden_folder / "dspark_f32.safetensors")["input_ids"][0].tolist()
    use(tiny_model, "f32")
    spec = generate_dspark(tiny_model, prompt, len(case["greedy_tokens"]))
    assert (
        spec.tokens == case["greedy_tokens"] == generate(tiny_model, prompt, len(case["greedy_tokens"])).tokens
    )
    assert spec.accepted == case["accepted"]
    assert spec.drafts[0].tokens == case["draft_tokens"]


def test_the_quantizer_file_is_met_byte_for_byte(golden_folder: Path) -> None:
    want = load_file(golden_folder / "quant.safetensors")
    got = quant_vectors()
    assert got.keys() == want.keys()
    for key, value in want.items():
        assert torch.equal(got[key].view(torch.uint8), value.view(torch.uint8)), key
