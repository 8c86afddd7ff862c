"""Number formats of the checkpoint and of the KV caches.

  E2M1  4-bit float, magnitudes 0 .5 1 1.5 2 3 4 6, sign in bit 3
  E4M3  8-bit float (the finite-only variant), largest magnitude 448
  E8M0  8-bit power of two, value 2^(byte-127)

Every quantizer below takes float input, works in float32 and comes in two forms: `pack_*` returns
stored bytes and scales, `fake_*` returns the value after a round trip, with a straight-through
gradient. Where they describe the same format they produce bit-identical numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

E4M3_MAX = 448.0
E2M1_MAX = 6.0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Smallest block maxima; they only matter for all-zero or denormal blocks.
FP8_MIN_AMAX = 1e-4
FP4_MIN_AMAX = E2M1_MAX * 2.0**-126
E4M3_MIN_SCALE = 2.0**-9


def ste(x: Tensor, value: Tensor) -> Tensor:
    """Forward gives `value`, backward passes the gradient to x unchanged."""
    return x + (value.to(x.dtype) - x).detach() if x.requires_grad else value.to(x.dtype)


def ceil_pow2(x: Tensor) -> Tensor:
    """Smallest power of two >= x for positive finite x, computed on the bits (exact)."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0x007FFFFF) & 0x7F800000).view(torch.float32)


def e8m0_encode(scale: Tensor) -> Tensor:
    """Power-of-two float32 -> exponent byte, as float8_e8m0fnu."""
    return ((scale.contiguous().view(torch.int32) >> 23) & 0xFF).to(torch.uint8).view(torch.float8_e8m0fnu)


def e8m0_decode(scale: Tensor) -> Tensor:
    exp = scale.contiguous().view(torch.uint8).to(torch.int32) - 127
    return torch.ldexp(torch.ones_like(exp, dtype=torch.float32), exp)


def round_e4m3(x: Tensor) -> Tensor:
    """Round to nearest even on the E4M3 grid, saturating at 448; float32 result."""
    return x.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


def e2m1_codes(x: Tensor) -> Tensor:
    """4-bit codes, round to nearest even in each of the three spacings, saturating at 6."""
    mag = x.abs().clamp(max=E2M1_MAX)
    code = torch.where(
        mag < 2, (mag * 2).round(), torch.where(mag < 4, mag.round() + 2, (mag * 0.5).round() + 4)
    )
    return code.to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)


def round_e2m1(x: Tensor) -> Tensor:
    mag = x.abs().clamp(max=E2M1_MAX)
    val = torch.where(
        mag < 2, (mag * 2).round() * 0.5, torch.where(mag < 4, mag.round(), (mag * 0.5).round() * 2)
    )
    return torch.copysign(val, x)


def e2m1_pack(codes: Tensor) -> Tensor:
    """Two codes per byte along the last axis, even index in the low nibble; int8 as stored."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).view(torch.int8)


def e2m1_unpack(packed: Tensor) -> Tensor:
    b = packed.contiguous().view(torch.uint8)
    codes = torch.stack((b & 15, b >> 4), dim=-1).flatten(-2).long()
    table = torch.tensor(E2M1_VALUES + tuple(-v for v in E2M1_VALUES), device=packed.device)
    return table[codes]


# ------------------------------------------------------------------ scale rules
def _groups(x: Tensor, g: int) -> Tensor:
    assert x.shape[-1] % g == 0, f"{x.shape[-1]} is not a multiple of {g}"
    return x.float().unflatten(-1, (x.shape[-1] // g, g))


def _fp8_scale(amax: Tensor) -> Tensor:
    return ceil_pow2(amax.clamp(min=FP8_MIN_AMAX) / E4M3_MAX)


def _fp4_scale(amax: Tensor) -> Tensor:
    return ceil_pow2(amax.clamp(min=FP4_MIN_AMAX) / E2M1_MAX)


# ------------------------------------------------------------------ activations and caches (1 x g groups)
def fake_fp8(x: Tensor, group: int = 32) -> Tensor:
    """FP8 E4M3 with an E8M0 scale per `group`: GEMM activations, window KV, Engram rows."""
    with torch.no_grad():
        g = _groups(x, group)
        s = _fp8_scale(g.abs().amax(-1, keepdim=True))
        v = (round_e4m3(g / s) * s).flatten(-2)
    return ste(x, v)


def fake_mxfp4(x: Tensor, group: int = 32) -> Tensor:
    """FP4 E2M1 with an E8M0 scale per 32: indexer queries and keys, routed-expert weight rows."""
    with torch.no_grad():
        g = _groups(x, group)
        s = _fp4_scale(g.abs().amax(-1, keepdim=True))
        v = (round_e2m1(g / s) * s).flatten(-2)
    return ste(x, v)


def fake_kv_fp4(x: Tensor, group: int = 16) -> Tensor:
    """FP4 E2M1 with an E4M3 scale per 16: the compressed main KV (after RoPE)."""
    with torch.no_grad():
        g = _groups(x, group)
        s = round_e4m3((g.abs().amax(-1, keepdim=True) / E2M1_MAX).clamp(E4M3_MIN_SCALE, E4M3_MAX))
        v = (round_e2m1(g / s) * s).flatten(-2)
    return ste(x, v)


def pack_kv_fp4(x: Tensor, group: int = 16) -> tuple[Tensor, Tensor]:
    g = _groups(x, group)
    s = round_e4m3((g.abs().amax(-1, keepdim=True) / E2M1_MAX).clamp(E4M3_MIN_SCALE, E4M3_MAX))
    return e2m1_pack(e2m1_codes(g / s).flatten(-2)), s.squeeze(-1).to(torch.float8_e4m3fn)


# ------------------------------------------------------------------ weights
def _blocks(w: Tensor, b: int) -> Tensor:
    """[r, c] -> [r/b, b, c/b, b]; the row count may have a partial last block (zero padded)."""
    r, c = w.shape
    assert c % b == 0
    pad = -r % b
    if pad:
        w = torch.cat((w, w.new_zeros(pad, c)))
    return w.float().view((r + pad) // b, b, c // b, b)


def pack_fp8_block(w: Tensor, block: int = 32) -> tuple[Tensor, Tensor]:
    """Dense weight [r, c] -> (E4M3 [r, c], E8M0 [ceil(r/32), c/32])."""
    b = _blocks(w, block)
    s = _fp8_scale(b.abs().amax((1, 3), keepdim=True))
    q = (b / s).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).reshape(-1, w.shape[1])[: w.shape[0]]
    return q.contiguous(), e8m0_encode(s[:, 0, :, 0])


def unpack_fp8_block(q: Tensor, scale: Tensor, block: int = 32) -> Tensor:
    s = e8m0_decode(scale).repeat_interleave(block, 0)[: q.shape[0]].repeat_interleave(block, 1)
    return q.float() * s


def fake_fp8_block(w: Tensor, block: int = 32) -> Tensor:
    with torch.no_grad():
        b = _blocks(w, block)
        s = _fp8_scale(b.abs().amax((1, 3), keepdim=True))
        v = (round_e4m3(b / s) * s).reshape(-1, w.shape[1])[: w.shape[0]]
    return ste(w, v)


def pack_mxfp4(w: Tensor, group: int = 32) -> tuple[Tensor, Tensor]:
    """Expert weight [..., c] -> (I8 [..., c/2], E8M0 [..., c/32])."""
    g = _groups(w, group)
    s = _fp4_scale(g.abs().amax(-1, keepdim=True))
    return e2m1_pack(e2m1_codes(g / s).flatten(-2)), e8m0_encode(s.squeeze(-1))


def unpack_mxfp4(q: Tensor, scale: Tensor, group: int = 32) -> Tensor:
    return e2m1_unpack(q) * e8m0_decode(scale).repeat_interleave(group, -1)


def pack_fp8_rows(t: Tensor, group: int = 32) -> tuple[Tensor, Tensor]:
    """Engram table [rows, d] -> (E4M3 [rows, d], E8M0 [rows, d/32])."""
    g = _groups(t, group)
    s = _fp8_scale(g.abs().amax(-1, keepdim=True))
    return (g / s).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).flatten(-2).contiguous(), e8m0_encode(
        s.squeeze(-1)
    )


def unpack_fp8_rows(q: Tensor, scale: Tensor, group: int = 32) -> Tensor:
    return q.float() * e8m0_decode(scale).repeat_interleave(group, -1)
