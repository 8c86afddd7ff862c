"""Exact match of the greedy answer on held-out prompts."""

from __future__ import annotations

import torch

from training.reference.model import Model


@torch.no_grad()
def exact_match(model: Model, cases: list[dict], batch: int = 16, max_len: int = 1600) -> dict[str, float]:
    """Share of held-out prompts whose greedy completion equals the expected one. Teacher forcing gives
    the same answer as generation: all positions match exactly when greedy decoding would."""
    dev = model.embed.weight.device
    cases = sorted(
        (c for c in cases if len(c["prompt_ids"]) + len(c["completion_ids"]) <= max_len),
        key=lambda c: len(c["prompt_ids"]),
    )
    hit: dict[str, list[float]] = {}
    for i in range(0, len(cases), batch):
        part = cases[i : i + batch]
        rows = [c["prompt_ids"] + c["completion_ids"] for c in part]
        width = (max(map(len, rows)) + 7) // 8 * 8
        ids = torch.zeros(len(part), width, dtype=torch.long)
        for r, row in enumerate(rows):
            ids[r, : len(row)] = torch.tensor(row)
        guess = model(ids.to(dev)).logits.argmax(-1).cpu()
        for r, c in enumerate(part):
            a, b = len(c["prompt_ids"]), len(rows[r])
            hit.setdefault(c["task"], []).append(float(bool((guess[r, a - 1 : b - 1] == ids[r, a:b]).all())))
    res = {k: sum(v) / len(v) for k, v in sorted(hit.items())}
    return {**res, "mean": sum(res.values()) / len(res)}
