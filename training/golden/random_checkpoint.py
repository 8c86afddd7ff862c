"""The tiny checkpoint with random weights that the vectors without training are computed from."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from training.reference import checkpoint
from training.reference.model import Model
from training.reference.presets import tiny
from training.reference.random_weights import randomize
from training.reference.vocabulary import compressed_token_map, train_tokenizer

TEXT = (
    "The quick brown fox jumps over the lazy dog. Numbers 0 1 2 3 4 5 6 7 8 9. 你好，世界！请问今天天气怎么样？ "
    "def add(a, b):\n    return a + b\n\n{\"name\": \"Alice\", \"age\": 30}\n"
)  # fmt: skip


def make_checkpoint(path: Path) -> None:
    """Writes weights, config.json, tokenizer.json and engram_token_map.json to `path`."""
    path.mkdir(parents=True, exist_ok=True)
    train_tokenizer([TEXT] * 20, 384, str(path / "tokenizer.json"))
    table, size = compressed_token_map(str(path / "tokenizer.json"))
    (path / "engram_token_map.json").write_text(json.dumps({"size": size, "map": table}))
    cfg = tiny(len(table), size)
    model = randomize(Model(cfg, token_map=table), 20260910)
    with torch.no_grad():
        model.head.weight.mul_(2.0)
        # Calm the random network: sub-layers add less to the streams, so that rounding differences
        # grow slowly from layer to layer and low-precision runs stay comparable.
        for name, p in model.named_parameters():
            if name.endswith((".wo_b.weight", ".w2.weight", ".experts.w2", ".engram.wkv.weight")):
                p.mul_(0.35)
    print(
        f"tiny checkpoint: {checkpoint.save(model, path) / 1e6:.2f} MB, vocabulary {len(table)}, compressed {size}"
    )
