"""Inputs of the quantizers with the bytes, scales and values that they yield."""

from __future__ import annotations

import torch
from torch import Tensor

from training.reference import number_formats


def quant_vectors() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(11)
    out: dict[str, Tensor] = {}
    x = torch.randn(8, 128, generator=g) * torch.logspace(-6, 3, 8)[:, None]
    x[0, :32] = 0
    x[1, :4] = torch.tensor([448.0, 449.0, -480.0, 1e-9])
    x[2, :16] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0] * 2) * 0.5  # E2M1 ties
    out["input"] = x
    for name, pack, fake in (
        ("fp8_group32", number_formats.pack_fp8_rows, number_formats.fake_fp8),
        ("mxfp4_group32", number_formats.pack_mxfp4, number_formats.fake_mxfp4),
        ("kv_fp4_group16", number_formats.pack_kv_fp4, number_formats.fake_kv_fp4),
    ):
        q, s = pack(x)
        out[f"{name}.bytes"], out[f"{name}.scale"], out[f"{name}.value"] = q, s, fake(x)
    w = torch.randn(80, 96, generator=g) * torch.logspace(-4, 2, 80)[:, None]
    q, s = number_formats.pack_fp8_block(w)
    out.update(
        {
            "block.input": w,
            "block.bytes": q,
            "block.scale": s,
            "block.value": number_formats.unpack_fp8_block(q, s),
        }
    )
    return out
