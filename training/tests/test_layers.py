"""Small pieces against the vectors of spec/model.md 16.1 to 16.4 and 16.7 (eight printed digits each)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.reference.attention import Attention
from training.reference.config import Config
from training.reference.engram import NgramHash, engram_gate
from training.reference.layers import rope, rope_frequencies, swiglu, top_mask
from training.reference.options import Options
from training.reference.presets import tiny
from training.reference.primes import engram_primes
from training.reference.streams import sinkhorn

DEAD = 4  # any id; marked as an image in test_engram_hashes_of_the_real_sizes


def test_sinkhorn_of_the_specification() -> None:
    j, k = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    got = sinkhorn(((4 * j + k) * 7 % 11) / 4 - 1, 20, 1e-6)
    want = [
        [0.0796612, 0.2654968, 0.0796606, 0.5751804],
        [0.3738794, 0.0796608, 0.3738799, 0.1725789],
        [0.1725790, 0.5751806, 0.1725786, 0.0796608],
        [0.3738794, 0.0796608, 0.3738799, 0.1725789],
    ]
    torch.testing.assert_close(got, torch.tensor(want), atol=1e-6, rtol=0)


def test_gate_scores_of_the_specification() -> None:
    x = torch.tensor([-20.0, -2, -0.5, 0, 1, 3, 25])
    want = [4.5399930e-05, 0.35626958, 0.68853249, 0.83255461, 1.14597630, 1.74602043, 5.0]
    torch.testing.assert_close(torch.nn.functional.softplus(x).sqrt(), torch.tensor(want), rtol=1e-6, atol=0)


def test_swiglu_clips_gate_and_value() -> None:
    got = swiglu(torch.tensor([12.0, -3.0]), torch.tensor([-15.0, 2.0]), 10.0)
    torch.testing.assert_close(got, torch.tensor([-99.99546, -0.28455524]), rtol=1e-6, atol=0)


def test_engram_gate_of_the_specification() -> None:
    got = engram_gate(torch.tensor([0.25, -4.0, 1e-8, 9.0]))
    torch.testing.assert_close(
        got, torch.tensor([0.62245933, 0.11920292, 0.50025000, 0.95257413]), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("fused", [False, True])
def test_the_sink_takes_its_share_and_gives_nothing(fused: bool) -> None:
    attention = Attention(tiny(), Options(fast_attention=fused), 0)
    cfg = attention.cfg
    with torch.no_grad():
        attention.attn_sink.fill_(0.5)
    q = torch.zeros(1, 1, cfg.num_attention_heads, cfg.head_dim)
    q[..., 0] = cfg.head_dim**0.5  # so that the scaled logit is channel 0 of the key
    keys = torch.zeros(1, 2, cfg.head_dim)
    keys[0, 0, 0], keys[0, 1, 0] = 1.0, 2.0
    keys[0, 0, 1], keys[0, 1, 2] = 1.0, 1.0  # channels 1 and 2 of the result are the two weights
    out = attention.attend(q, keys, torch.ones(1, 1, 2, dtype=torch.bool))
    want = torch.tensor([0.23122390, 0.62853172]).expand(cfg.num_attention_heads, 2)
    torch.testing.assert_close(out[0, 0, :, 1:3], want, rtol=1e-6, atol=0)


def test_rope_frequencies_of_the_real_sizes() -> None:
    plain, yarn = rope_frequencies(Config(), False), rope_frequencies(Config(), True)
    at = [0, 1, 15, 16, 20, 24, 25, 31]
    want_plain = [
        1.0,
        0.74989420,
        0.013335215,
        0.0099999998,
        0.0031622779,
        0.0010000000,
        0.00074989418,
        0.00013335215,
    ]
    want_yarn = [
        1.0,
        0.68765604,
        0.0036355385,
        0.0022656249,
        0.00029697779,
        1.9531253e-05,
        5.3723124e-06,
        5.6805294e-07,
    ]
    torch.testing.assert_close(
        plain[at], torch.tensor(want_plain), rtol=3e-7, atol=0
    )  # an ulp of the power function
    torch.testing.assert_close(yarn[at], torch.tensor(want_yarn), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("compressed", "i", "position", "cosine"),
    [(True, 5, 1_000_000, -0.77129060), (False, 1, 777_777, 0.36702229)],
)
def test_rope_angles_are_products_in_float32(compressed: bool, i: int, position: int, cosine: float) -> None:
    # In double precision both cosines differ in the third digit; caches of the two kinds would not match.
    inv = rope_frequencies(Config(), compressed)
    x = torch.zeros(1, 1, 64)
    x[0, 0, 2 * i] = 1.0
    got = rope(x, torch.tensor([position]), inv)[0, 0, 2 * i].item()
    # The frequency's last bit depends on the power function and moves the angle by 2^-24 of itself.
    assert got == pytest.approx(cosine, abs=position * float(inv[i]) * 2.0**-24 * 1.1)


def test_turning_back_undoes_a_rotation() -> None:
    x = torch.randn(1, 5, 3, 64, generator=torch.Generator().manual_seed(2))
    pos, inv = torch.arange(5) + 100, rope_frequencies(tiny(), True)
    torch.testing.assert_close(rope(rope(x, pos, inv), pos, inv, inverse=True), x, rtol=0, atol=1e-6)


def test_equal_scores_go_to_the_lower_position() -> None:
    score = torch.tensor([[1.0, 3.0, 1.0, 1.0, -torch.inf]])
    assert top_mask(score, 3, exact=True).tolist() == [[True, True, True, False, False]]


def test_what_is_not_visible_is_never_selected() -> None:
    score = torch.tensor([[1.0, -torch.inf, -torch.inf, -torch.inf]])
    assert top_mask(score, 2, exact=True).tolist() == [[True, False, False, False]]


def test_engram_tables_of_the_real_sizes_are_primes_in_order() -> None:
    first, second = engram_primes(Config())
    assert first[:4] == [16000057, 16000079, 16000081, 16000097]
    assert second[-2:] == [16000879, 16000889]
    assert [sum(first), sum(second)] == [384006168, 384016682]


def test_engram_hashes_of_the_real_sizes() -> None:
    ids = torch.tensor([[0, 17, 99091, 42, DEAD, 7]])
    image = ids == DEAD
    got = NgramHash(Config())(ids, image, 0)[..., [0, 7, 8, 15, 16, 23]]
    want = {
        (0, 0): [5702652, 121476532, 131476717, 247482304, 257520185, 380066193],
        (0, 3): [13131409, 115341818, 140379165, 255267031, 257102120, 373972300],
        (0, 5): [8939594, 121427189, 128454377, 241631034, 263018334, 373889199],
        (1, 0): [14361964, 120604547, 132225184, 252505246, 261362261, 372375971],
        (1, 3): [3275938, 121693602, 142937982, 243821763, 266975520, 381836281],
        (1, 5): [11595187, 119551817, 142795052, 240801687, 256183825, 371414676],
    }
    for (layer, position), rows in want.items():
        assert got[layer, 0, position].tolist() == rows


def test_the_hash_multipliers_come_from_the_generator_of_the_specification() -> None:
    words = np.random.SeedSequence(10007).generate_state(8)
    assert [
        f"{w:08x}" for w in words
    ] == "8ad70d07 77d32a34 b84a4fa5 993ed609 c8698e49 d5f972de bcf148de 7d79ebae".split()
    assert f"{np.random.PCG64(140098).random_raw():016x}" == "ba3ecc29cf07c111"
