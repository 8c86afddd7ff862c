"""Reading and writing .safetensors files without the safetensors package.

Layout: u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}}, then the
raw little-endian tensor bytes; offsets count from the end of the header.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import Tensor

DTYPES = {
    "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu, "I8": torch.int8, "U8": torch.uint8, "I32": torch.int32, "I64": torch.int64,
    "BOOL": torch.bool,
}  # fmt: skip
NAMES = {v: k for k, v in DTYPES.items()}


def save_file(tensors: dict[str, Tensor], path: str | Path, metadata: dict[str, str] | None = None) -> None:
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    # Wide types first keeps every tensor aligned to its element size.
    order = sorted(tensors, key=lambda k: (-tensors[k].element_size(), k))
    at = 0
    for k in order:
        size = tensors[k].numel() * tensors[k].element_size()
        header[k] = {
            "dtype": NAMES[tensors[k].dtype],
            "shape": list(tensors[k].shape),
            "data_offsets": [at, at + size],
        }
        at += size
    blob = json.dumps(header, ensure_ascii=False).encode()
    blob += b" " * (-len(blob) % 8)
    with open(path, "wb") as f:
        f.write(len(blob).to_bytes(8, "little") + blob)
        for k in order:
            f.write(tensors[k].detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


class SafeFile:
    """An open file: `header` has one entry a tensor; `get` reads that tensor's bytes only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with open(path, "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            self.header = json.loads(f.read(n))
        self.metadata = self.header.pop("__metadata__", {})
        self.base = 8 + n

    def get(self, name: str) -> Tensor:
        e = self.header[name]
        dtype, (start, end) = DTYPES[e["dtype"]], e["data_offsets"]
        if end - start != math.prod(e["shape"]) * dtype.itemsize:
            raise ValueError(
                f"{name} has {end - start} bytes, not those of its shape {e['shape']} ({self.path})"
            )
        with open(self.path, "rb") as f:
            f.seek(self.base + start)
            raw = bytearray(f.read(end - start))
        if not raw:  # frombuffer refuses an empty buffer
            return torch.empty(e["shape"], dtype=dtype)
        return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).view(e["shape"])


def load_file(path: str | Path) -> dict[str, Tensor]:
    f = SafeFile(path)
    return {name: f.get(name) for name in f.header}
