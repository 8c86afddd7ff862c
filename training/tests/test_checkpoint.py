"""Checkpoint files: what is written is read back, and is what training saw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from training.reference import checkpoint
from training.reference.config import Config
from training.reference.model import Model
from training.reference.presets import tiny
from training.reference.random_weights import randomize


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Path]:
    model, folder = randomize(Model(tiny())).eval(), tmp_path_factory.mktemp("checkpoint")
    checkpoint.save(model, folder, {"phase": "test"})
    return model, folder


def test_writing_again_what_was_read_keeps_every_value(saved: tuple[Model, Path], tmp_path: Path) -> None:
    # Not every byte: a block whose maximum was rounded down to 448 scales gets half the scale next time.
    _, folder = saved
    once = checkpoint.load(folder)
    checkpoint.save(once, tmp_path)
    assert (tmp_path / "config.json").read_bytes() == (folder / "config.json").read_bytes()
    for (name, p), (_, q) in zip(
        once.named_parameters(), checkpoint.load(tmp_path).named_parameters(), strict=True
    ):
        assert torch.equal(p, q), name


@torch.no_grad()
def test_fake_quantization_is_what_the_file_stores(saved: tuple[Model, Path]) -> None:
    model, folder = saved
    stored = checkpoint.load(folder)
    for name, p in model.named_parameters():
        if checkpoint.storage_of(name) == "bf16":
            p.copy_(p.bfloat16().float())
    model.opts.weight_quant = True
    tokens = torch.randint(5, model.cfg.vocab_size, (1, 48), generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(tokens).logits, stored(tokens).logits)


def test_the_configuration_and_the_metadata_survive(saved: tuple[Model, Path]) -> None:
    model, folder = saved
    assert Config.load(folder).to_json() == model.cfg.to_json()
    assert checkpoint.Reader(folder).metadata == {"format": "pt", "phase": "test"}


def test_the_index_names_every_tensor_and_their_bytes(saved: tuple[Model, Path]) -> None:
    model, folder = saved
    tensors = checkpoint.export_tensors(model)
    index = json.loads((folder / checkpoint.INDEX).read_text())
    assert sorted(index["weight_map"]) == sorted(tensors)
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in tensors.values())
    assert "layers.0.ffn.experts.7.w3.scale" in tensors  # experts are single tensors in the file


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"compress_ratios": [0, 0, 2]}, "compress_ratios covers"),
        ({"compress_ratios": [0, 0, 3, 2, 1, 1, 1, 1, 0, 0, 0]}, "ratios are 0, 1 or 2"),
        ({"index_topk": 64}, "candidate blocks hold"),
        ({"head_dim": 65}, "head_dim is a multiple"),
        ({"num_key_value_heads": 2}, "one key-value row"),
    ],
)
def test_an_impossible_configuration_names_the_rule(change: dict, rule: str) -> None:
    doc = tiny().to_json()
    doc["text_config"] |= change
    with pytest.raises(ValueError, match=rule):
        Config.from_json(doc)


def test_a_tokenizer_of_another_size_is_refused(saved: tuple[Model, Path], tmp_path: Path) -> None:
    _, folder = saved
    for name in ("config.json", checkpoint.INDEX, checkpoint.SHARD):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "engram_token_map.json").write_text(json.dumps({"size": 3, "map": [0, 1, 2]}))
    with pytest.raises(ValueError, match="3 compressed ids"):
        checkpoint.load(tmp_path)
