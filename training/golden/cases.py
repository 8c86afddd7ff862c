"""Runs the cases of golden/cases.json: each writes its tensors and yields its entry of that file.

Kinds: `full` is one prefill of all tokens, `replay` the same with the decoder half run on the last
rows only, `image` a full one with image positions; each goes on with single-token decode steps.
`dspark` drafts after a prompt.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from training.reference.cache import Cache
from training.reference.config import Config
from training.reference.generate import generate, generate_dspark, propose
from training.reference.model import Model, Output
from training.reference.options import Options
from training.reference.tensorfile import save_file

MODES = {
    "f32": Options(),
    "f32_noquant": Options(kv_quant=False),
    "bf16_act8": Options(dtype=torch.bfloat16, act_quant=True),
}
SHOWN_LAYERS = (0, 1, 2, 4, 7)  # streams that the files of the tiny network keep
ONLY_IN_F32 = ("index_score", "streams", "rows", "index_keys")  # left out of the other modes: small files


def use(model: Model, mode: str) -> None:
    """Gives the model the arithmetic of `mode`."""
    for name, value in vars(MODES[mode]).items():
        setattr(model.opts, name, value)


def margin(score: Tensor, k: int) -> float:
    """Smallest gap between the k-th and (k+1)-th score over rows that have more than k entries."""
    if score.shape[-1] <= k:
        return float("inf")
    top = score.topk(k + 1, dim=-1).values
    gap = top[..., k - 1] - top[..., k]
    gap = gap[top[..., k] > -torch.inf]
    return float(gap.min()) if gap.numel() else float("inf")


def cached_rows(cache: Cache, cfg: Config) -> dict[str, Tensor]:
    """What each layer keeps: the last window, and of KV sources all compressed rows and index keys."""
    t: dict[str, Tensor] = {}
    for i, layer in enumerate(cache.layers):
        t[f"layers.{i}.window_rows"] = layer.window[:, -cfg.sliding_window :].float()
        if layer.comp is not None:
            t[f"layers.{i}.compressed_rows"], t[f"layers.{i}.index_keys"] = (
                layer.comp.float(),
                layer.ikey.float(),
            )
    return t


def prefill_tensors(
    out: Output, total: int, cfg: Config, rows: list[int] | None
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The tensors of a prefill of `total` tokens that have a T axis, and the selection margin of each
    index source. `rows` keeps only these positions (all when None)."""

    def cut(v: Tensor) -> Tensor:
        skipped = total - v.shape[1]  # rows that replay did not run
        return v if rows is None else v[:, [r - skipped for r in rows if r >= skipped]]

    t = {"logits": cut(out.logits), "main_hidden": cut(out.main_hidden.float())}
    margins: dict[str, float] = {}
    shown = SHOWN_LAYERS if rows is None else range(cfg.n_layers)
    for name, v in out.trace.items():
        layer = int(name.split(".")[1])
        if name.endswith("index_score"):
            margins[str(layer)] = margin(v, cfg.index_topk)
            t[name] = cut(v.masked_fill(v == -torch.inf, -1e30))
        elif name.endswith("selected"):
            t[name] = cut(v.to(torch.uint8))
        elif layer in shown:
            t[name] = cut(v.float())
    return t, margins


@torch.no_grad()
def prefill_and_decode(
    model: Model,
    ids: Tensor,
    more: list[int],
    *,
    replay: int | None = None,
    image: Tensor | None = None,
    rows: list[int] | None = None,
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """All tensors of a `full`, `replay` or `image` case in the model's present mode, and the margins."""
    cfg, cache = model.cfg, Cache.new(model.cfg)
    out = model(ids, cache, replay=replay, image=image, trace_layers=tuple(range(cfg.n_layers)))
    t, margins = prefill_tensors(out, ids.shape[1], cfg, rows)
    t["input_ids"] = ids.int()
    if rows is not None:
        t["rows"] = torch.tensor(rows, dtype=torch.int32)
    if image is not None:
        t["image_mask"] = image
    if model.ngram is not None:
        table_rows = model.ngram(cache.tokens, cache.image, 0)
        for i, layer in enumerate(cfg.engram_layer_ids):
            t[f"layers.{layer}.engram_rows"] = table_rows[i].int()
    t |= cached_rows(cache, cfg)
    t["decode_ids"] = torch.tensor([more], dtype=torch.int32)
    t["decode_logits"] = torch.cat([model(torch.tensor([[token]]), cache).logits for token in more], dim=1)
    return t, margins


def full_and_replay(
    model: Model,
    out: Path,
    ids: Tensor,
    more: list[int],
    replay: int,
    image: Tensor | None = None,
    rows: list[int] | None = None,
) -> list[dict]:
    """Cases full_* and replay_* in all modes, and image_f32 when an image mask is given."""
    cases = []
    for mode in MODES:
        use(model, mode)
        kinds = ("full", "replay", "image") if mode == "f32" and image is not None else ("full", "replay")
        for kind in kinds:
            last = replay if kind == "replay" else None
            mask = image if kind == "image" else None
            t, margins = prefill_and_decode(model, ids, more, replay=last, image=mask, rows=rows)
            if mode != "f32":
                t = {k: v for k, v in t.items() if k == "rows" or not k.endswith(ONLY_IN_F32)}
            name = f"{kind}_{mode}"
            save_file(t, out / f"{name}.safetensors")
            entry = {"name": name, "mode": mode, "kind": kind, "prefill": ids.shape[1], "replay": last}
            cases.append({**entry, "topk_margin": margins})
    return cases


@torch.no_grad()
def dspark_case(
    model: Model,
    out: Path,
    name: str,
    ids: Tensor,
    count: int,
    replay: int | None = None,
    stop: tuple[int, ...] = (),
) -> dict:
    """The first draft block after a prompt in full, and `count` tokens of speculative greedy decoding,
    which must be those of plain greedy decoding."""
    use(model, "f32")
    cfg, cache, prompt = model.cfg, Cache.new(model.cfg), ids[0].tolist()
    o = model(ids, cache, replay=replay)
    start = cache.length - o.main_hidden.shape[1]
    model.extend_draft_cache(cache, o.main_hidden, start)
    first = int(o.logits[0, -1].argmax())
    last, pos = torch.tensor([[cache.length - 1]]), torch.arange(start, cache.length)
    hidden = model.draft_hidden(torch.tensor([[first]]), last, [c.window for c in cache.draft], pos)[0, 0]
    block = propose(model, cache, first)
    plain = generate(model, prompt, count, replay=replay, stop=stop)
    spec = generate_dspark(model, prompt, count, replay=replay, stop=stop)
    if plain.tokens != spec.tokens:
        raise RuntimeError(f"drafts changed the text: {plain.tokens} became {spec.tokens} ({name})")
    anchors = [first, *block.tokens[:-1]]
    t = {
        "input_ids": ids.int(),
        "hidden": hidden.float(),
        "base_logits": model.logits(hidden, model.mtp[-1].norm),
        "markov_bias": torch.stack([model.markov_bias(torch.tensor([p]))[0][0] for p in anchors]),
        "plain_logits": torch.stack(plain.logits),
    }
    t |= {f"mtp.{i}.window_rows": c.window[:, -cfg.sliding_window :].float() for i, c in enumerate(cache.draft)}
    save_file(t, out / f"{name}.safetensors")
    entry = {
        "name": name,
        "mode": "f32",
        "kind": "dspark",
        **({"replay": replay} if replay else {}),
        "anchor_token": first,
        "anchor_position": cache.length - 1,
        "draft_tokens": block.tokens,
        "confidence": block.confidence,
        "greedy_tokens": plain.tokens,
        "accepted": spec.accepted,
    }
    if stop:
        entry["rounds"] = [{"draft_tokens": d.tokens, "confidence": d.confidence} for d in spec.drafts]
    return entry
