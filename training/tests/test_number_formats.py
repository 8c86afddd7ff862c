"""Number formats against the vectors of spec/model.md 16.5 and 16.7, and against golden/quant.safetensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from training.reference import number_formats as nf
from training.reference.tensorfile import load_file


def bytes_of(t: Tensor) -> list[int]:
    return t.contiguous().view(torch.uint8).flatten().tolist()


def group_with_largest(amax: float, size: int) -> Tensor:
    x = torch.zeros(1, size)
    x[0, size // 2] = amax
    return x


@pytest.mark.parametrize(("amax", "scale"), [(448.0, 1.0), (449.0, 2.0), (224.0, 0.5), (0.0, 2.0**-22)])
def test_an_fp8_scale_is_the_next_power_of_two(amax: float, scale: float) -> None:
    _, s = nf.pack_fp8_rows(group_with_largest(amax, 32))
    assert nf.e8m0_decode(s).item() == scale


@pytest.mark.parametrize(("amax", "scale"), [(6.0, 1.0), (6.5, 2.0)])
def test_an_mxfp4_scale_is_the_next_power_of_two(amax: float, scale: float) -> None:
    _, s = nf.pack_mxfp4(group_with_largest(amax, 32))
    assert nf.e8m0_decode(s).item() == scale


@pytest.mark.parametrize(("amax", "scale"), [(6.0, 1.0), (10.0, 1.625), (0.0, 2.0**-9)])
def test_a_compressed_row_has_e4m3_scales(amax: float, scale: float) -> None:
    _, s = nf.pack_kv_fp4(group_with_largest(amax, 16))
    assert s.float().item() == scale


def test_a_value_above_six_scales_saturates() -> None:
    # 10 / 1.625 = 6.15 is above the largest E2M1 value, so it comes back as 6 * 1.625.
    assert nf.fake_kv_fp4(group_with_largest(10.0, 16)).max().item() == 9.75


def test_q8_gives_the_bytes_of_the_specification() -> None:
    x = ((torch.arange(32) - 16) * 0.37).bfloat16().float()[None]
    codes, scale = nf.pack_fp8_rows(x)
    want = "fcfbfafaf9f8f7f5f4f2f1efece9e4dc005c64696c6f717274757778797a7a7b"
    assert bytes(bytes_of(codes)).hex() == want
    assert bytes_of(scale) == [121]


def test_q4i_gives_the_bytes_of_the_specification() -> None:
    x = ((torch.arange(32) - 16) * 0.37).bfloat16().float()[None]
    codes, scale = nf.pack_mxfp4(x)
    # The specification prints the code of each value in order; the file holds two a byte, the first one low.
    assert nibbles(codes) == spec_nibbles("ffefeededdccab991021435455666677")
    assert bytes_of(scale) == [127]


def test_q4k_gives_the_bytes_of_the_specification() -> None:
    x = ((torch.arange(16) - 7.5) * 0.3).bfloat16().float()[None]
    codes, scale = nf.pack_kv_fp4(x)
    assert nibbles(codes) == spec_nibbles("ffeecd9a21546677")
    assert bytes_of(scale) == [0x2C]


def nibbles(packed: Tensor) -> list[int]:
    return [n for b in bytes_of(packed) for n in (b & 15, b >> 4)]


def spec_nibbles(packed_hex: str) -> list[int]:
    return [n for b in bytes.fromhex(packed_hex) for n in (b & 15, b >> 4)]


def test_e2m1_rounds_ties_to_even_and_saturates() -> None:
    x = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, 7.0])
    assert nf.round_e2m1(x).tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -0.0, 6.0]


def test_all_sixteen_e2m1_codes_survive_packing() -> None:
    values = torch.tensor([*nf.E2M1_VALUES, *(-v for v in nf.E2M1_VALUES)])
    codes = nf.e2m1_codes(values)
    assert codes.tolist() == list(range(16))
    assert torch.equal(nf.e2m1_unpack(nf.e2m1_pack(codes)), values)


def test_all_finite_e8m0_bytes_survive_decoding() -> None:
    stored = torch.arange(1, 255, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    assert bytes_of(nf.e8m0_encode(nf.e8m0_decode(stored))) == list(range(1, 255))


def test_training_sees_exactly_what_the_file_will_hold() -> None:
    g = torch.Generator().manual_seed(0)
    w = torch.randn(70, 96, generator=g) * torch.logspace(-3, 1, 70)[:, None]  # 70: a partial last block
    assert torch.equal(nf.unpack_fp8_block(*nf.pack_fp8_block(w)), nf.fake_fp8_block(w))
    w = torch.randn(3, 40, 64, generator=g)
    assert torch.equal(nf.unpack_mxfp4(*nf.pack_mxfp4(w)), nf.fake_mxfp4(w))
    assert torch.equal(nf.unpack_fp8_rows(*nf.pack_fp8_rows(w[0])), nf.fake_fp8(w[0]))
    codes, scale = nf.pack_kv_fp4(w)
    assert torch.equal(nf.e2m1_unpack(codes) * scale.float().repeat_interleave(16, -1), nf.fake_kv_fp4(w))


@pytest.mark.parametrize("fake", [nf.fake_fp8, nf.fake_mxfp4])
def test_rounding_twice_changes_nothing(fake) -> None:
    # Not so for compressed rows: their scale is not a power of two, and may shrink the second time.
    once = fake(torch.randn(4, 64, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(fake(once), once)


def test_the_golden_quantizer_vectors_are_met_exactly(golden_folder: Path) -> None:
    want = load_file(golden_folder / "quant.safetensors")
    for name, pack, fake in (
        ("fp8_group32", nf.pack_fp8_rows, nf.fake_fp8),
        ("mxfp4_group32", nf.pack_mxfp4, nf.fake_mxfp4),
        ("kv_fp4_group16", nf.pack_kv_fp4, nf.fake_kv_fp4),
    ):
        codes, scale = pack(want["input"])
        assert bytes_of(codes) == bytes_of(want[f"{name}.bytes"])
        assert bytes_of(scale) == bytes_of(want[f"{name}.scale"])
        assert torch.equal(fake(want["input"]), want[f"{name}.value"])
    codes, scale = nf.pack_fp8_block(want["block.input"])
    assert bytes_of(codes) == bytes_of(want["block.bytes"])
    assert bytes_of(scale) == bytes_of(want["block.scale"])
    assert torch.equal(nf.unpack_fp8_block(codes, scale), want["block.value"])
