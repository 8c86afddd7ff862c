"""Checkpoint files with the official tensor names, dtypes and packing.

| tensors | stored as | `storage_of` |
|---|---|---|
| ffn.experts.N.w1/w2/w3 | I8 (two E2M1 per byte) + `.scale` E8M0 per 32 inputs | mxfp4 |
| wq_a wq_b wkv wo_a wo_b, indexer.wq_b, shared_experts.*, engram.wkv, main_proj | E4M3 + `.scale` E8M0 per 32x32 block | fp8_block |
| engram.embed | E4M3 + `.scale` E8M0 per 32 channels of a row | fp8_rows |
| hc_*, attn_sink, ffn.gate.bias, ffn.gate.bias_vl | F32 | f32 |
| everything else | BF16 | bf16 |
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from torch import Tensor

from training.reference import number_formats
from training.reference.config import Config
from training.reference.model import Model
from training.reference.options import Options
from training.reference.tensorfile import SafeFile, save_file

SHARD = "model-00001-of-00001.safetensors"
INDEX = "model.safetensors.index.json"

_EXPERT = re.compile(r"\.ffn\.experts\.(w[123])$")  # our stacked name; the file has one tensor an expert
_FP8_BLOCK = re.compile(
    r"\.(attn\.(wq_a|wq_b|wkv|wo_a|wo_b)|attn\.indexer\.wq_b|ffn\.shared_experts\.w[123]|engram\.wkv|main_proj)\.weight$"
)
_F32 = re.compile(r"(\.hc_(attn|ffn)_(fn|base|scale)|\.attn_sink|\.gate\.bias(_vl)?)$")


def storage_of(name: str) -> str:
    """Storage format of the parameter that state_dict calls `name`; see the table above."""
    if _EXPERT.search(name):
        return "mxfp4"
    if name.endswith(".engram.embed.weight"):
        return "fp8_rows"
    if _FP8_BLOCK.search(name):
        return "fp8_block"
    return "f32" if _F32.search(name) else "bf16"


def _scale_name(name: str) -> str:
    return name.removesuffix("weight") + "scale"


def _expert_names(name: str, experts: int) -> list[str]:
    stem, matrix = name.rsplit(".", 1)
    return [f"{stem}.{e}.{matrix}" for e in range(experts)]


def export_tensors(model: Model) -> dict[str, Tensor]:
    """All parameters as the file stores them, by tensor name, sorted."""
    out: dict[str, Tensor] = {}
    for name, parameter in model.state_dict().items():
        p = parameter.detach().float().cpu()
        match storage_of(name):
            case "mxfp4":
                for e, key in enumerate(_expert_names(name, p.shape[0])):
                    out[f"{key}.weight"], out[f"{key}.scale"] = number_formats.pack_mxfp4(p[e])
            case "fp8_rows":
                out[name], out[_scale_name(name)] = number_formats.pack_fp8_rows(p)
            case "fp8_block":
                out[name], out[_scale_name(name)] = number_formats.pack_fp8_block(p)
            case "f32":
                out[name] = p
            case _:
                out[name] = p.to(torch.bfloat16)
    return {k: v.contiguous() for k, v in sorted(out.items())}


def save(model: Model, directory: str | Path, meta: dict[str, str] | None = None) -> int:
    """Writes config.json, one shard and its index; returns the tensor bytes."""
    path = Path(directory)
    model.cfg.save(path)
    tensors = export_tensors(model)
    save_file(tensors, path / SHARD, metadata={"format": "pt", **(meta or {})})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(tensors, SHARD)}
    (path / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    return total


class Reader:
    """Finds a tensor's shard through the index; opens each shard once."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory)
        self.map = json.loads((self.path / INDEX).read_text())["weight_map"]
        self.open: dict[str, SafeFile] = {}

    def __call__(self, name: str) -> Tensor:
        shard = self.map[name]
        if shard not in self.open:
            self.open[shard] = SafeFile(self.path / shard)
        return self.open[shard].get(name)

    @property
    def metadata(self) -> dict[str, str]:
        return SafeFile(self.path / next(iter(self.map.values()))).metadata


def load_tensor(read: Reader, name: str, shape: torch.Size) -> Tensor:
    """The parameter `name` in float32, de-quantized; experts are stacked in order."""
    match storage_of(name):
        case "mxfp4":
            keys = _expert_names(name, shape[0])
            return torch.stack(
                [number_formats.unpack_mxfp4(read(f"{k}.weight"), read(f"{k}.scale")) for k in keys]
            )
        case "fp8_rows":
            return number_formats.unpack_fp8_rows(read(name), read(_scale_name(name)))
        case "fp8_block":
            return number_formats.unpack_fp8_block(read(name), read(_scale_name(name)))
        case _:
            return read(name).float()


def token_map_for(directory: str | Path, cfg: Config) -> list[int] | None:
    """Compressed-vocabulary map for the weights in `directory`, or None if it has no tokenizer.

    engram_token_map.json is our cached copy of what the tokenizer yields; the big checkpoint has only
    tokenizer.json.
    """
    cached, file = Path(directory) / "engram_token_map.json", Path(directory) / "tokenizer.json"
    if cached.exists():
        doc = json.loads(cached.read_text())
        table, size = doc["map"], doc["size"]
    elif file.exists():
        from training.reference.vocabulary import compressed_token_map  # needs the tokenizers package

        table, size = compressed_token_map(str(file))
    else:
        return None
    if size != cfg.engram_compressed_vocab_size:
        raise ValueError(
            f"the tokenizer has {size} compressed ids, config.json says {cfg.engram_compressed_vocab_size} ({directory})"
        )
    return table + [0] * (cfg.vocab_size - len(table))


def load(directory: str | Path, opts: Options | None = None, token_map: list[int] | None = None) -> Model:
    """The model of a checkpoint folder in float32, weights as stored (after quantization)."""
    cfg = Config.load(directory)
    model = Model(cfg, opts, token_map or token_map_for(directory, cfg))
    read = Reader(directory)
    model.load_state_dict({name: load_tensor(read, name, p.shape) for name, p in model.state_dict().items()})
    return model
