"""Trains the miniature: first the backbone, then the draft stages on the frozen backbone.

  python -m training.miniature.train --data DIR --out OUT --minutes 8 --total-minutes 16 [--state S] [--resume CKPT]
  python -m training.miniature.train --data DIR --out OUT --phase dspark --resume OUT/ckpt --minutes 6
  python -m training.miniature.train --data DIR --phase eval --resume OUT/ckpt

DIR is what training.miniature.corpus wrote; several train*.bin or train*.bin.xz are read one after
another. OUT/ckpt is in the official format. --state names a file with full-precision weights and
optimizer state; if it exists the run continues from it exactly, otherwise --resume continues from
the quantized checkpoint with a fresh optimizer.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from training.miniature.batches import Rows
from training.miniature.evaluate import exact_match
from training.miniature.losses import backbone_loss, balance, draft_anchors, draft_loss
from training.miniature.optimizers import optimizers
from training.miniature.recorded_step import RecordedStep
from training.reference import checkpoint
from training.reference.config import Config
from training.reference.model import Model
from training.reference.presets import mini, tiny

WARM_UP_STEPS = 100
SAVING_MINUTES = 0.35  # kept free at the end of a call


@dataclass
class Progress:
    """How far this phase is, over all calls so far."""

    minutes: float = 0.0
    step: int = 0
    state: dict | None = None  # full-precision weights and optimizers of the call before, if any


def start(a: argparse.Namespace, device: torch.device) -> tuple[Model, Progress]:
    """The model from --state, else from --resume, else with fresh weights."""
    file = a.data / "engram_token_map.json"
    vocab = json.loads(file.read_text()) if file.exists() else None
    progress = Progress()
    torch.manual_seed(a.seed)  # fresh weights, and the draft phase's choice of anchors
    if vocab is None and not a.resume:
        sys.exit(f"{file} is missing: run training.miniature.corpus first")
    if a.state and a.state.exists():
        state = torch.load(a.state, map_location="cpu", weights_only=True)
        cfg = Config.from_json(state["config"])
        model = Model(cfg, token_map=vocab["map"] + [0] * (cfg.vocab_size - len(vocab["map"])))
        model.load_state_dict(state["model"])
        if state["phase"] == a.phase:
            progress = Progress(state["minutes"], state["step"], state)
    elif a.resume:
        model = checkpoint.load(a.resume)
        meta = checkpoint.Reader(a.resume).metadata
        if not a.restart and meta.get("phase") == a.phase:
            progress = Progress(float(meta["minutes"]), int(meta["step"]))
    else:
        cfg = {"mini": mini, "tiny": tiny}[a.preset](len(vocab["map"]), vocab["size"])
        model = Model(cfg, token_map=vocab["map"])
        with torch.no_grad():
            model.embed.weight.mul_(0.5)
            model.head.weight.mul_(0.3)
    return model.to(device), progress


def save_checkpoint(a: argparse.Namespace, model: Model, minutes: float, step: int) -> None:
    out = a.out / "ckpt"
    size = checkpoint.save(model, out, {"phase": a.phase, "minutes": f"{minutes:.3f}", "step": str(step)})
    for name in ("tokenizer.json", "engram_token_map.json"):
        if (a.data / name).exists():
            shutil.copy(a.data / name, out / name)
    print(f"saved {out} ({size / 1e6:.1f} MB)", flush=True)


def save_state(
    a: argparse.Namespace, model: Model, opts: list[torch.optim.Optimizer], progress: Progress
) -> None:
    blob = {
        "config": model.cfg.to_json(),
        "phase": a.phase,
        "minutes": progress.minutes,
        "step": progress.step,
        "model": model.state_dict(),
        "optim": [opt.state_dict() for opt in opts],
    }
    torch.save(blob, a.state)
    print(f"state in {a.state}", flush=True)


def learning_rate(peak: float, steps_since_start: int, fraction: float) -> float:
    """Linear warm-up, then linear down to 3 % at the end of the schedule (`fraction` 1)."""
    return (
        peak
        * min((steps_since_start + 1) / WARM_UP_STEPS, 1.0)
        * (1 - 0.97 * fraction if fraction < 1 else 0.03)
    )


def evaluate(a: argparse.Namespace, model: Model) -> None:
    """Prints the exact match of each task, in float32 and in the training type."""
    training_type, model.opts.fast_attention, model.opts.exact_ties = model.opts.dtype, False, True
    lines = (a.data / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    for dtype in dict.fromkeys((torch.float32, training_type)):
        model.opts.dtype = dtype
        shares = exact_match(model.eval(), [json.loads(line) for line in lines])
        print(dtype, {task: round(share, 3) for task, share in shares.items()})


def train(a: argparse.Namespace, model: Model, progress: Progress, began: float) -> None:
    """Steps until the time of this call is used up; saves on the way and at the end."""
    options, draft = model.opts, a.phase == "dspark"
    options.weight_quant, options.index_loss = True, not draft
    params = {
        n: p for n, p in model.named_parameters() if n.startswith("mtp.") == draft and ".gate.bias" not in n
    }
    for name, p in model.named_parameters():
        p.requires_grad_(name in params)
    opts = optimizers(params, a.lr)
    warm = progress.step  # the warm-up restarts when only the weights were resumed
    if progress.state is not None:
        warm = 0
        for opt, saved in zip(opts, progress.state["optim"], strict=True):
            opt.load_state_dict(saved)
    rows = Rows(a.data / "train.bin", model.embed.weight.device, a.seq, a.seed + 1000 + progress.step)
    moes = [block.ffn for block in (model.mtp if draft else model.layers)]
    count, trained = (sum(p.numel() for p in ps) for ps in (model.parameters(), params.values()))
    print(
        f"{count / 1e6:.1f}M parameters, {trained / 1e6:.1f}M trained, {len(rows.ids) / 1e6:.1f}M tokens, "
        f"start {time.time() - began:.1f}s",
        flush=True,
    )

    def compute(*inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return draft_loss(model, *inputs) if draft else backbone_loss(model, *inputs, a.index_weight)

    def batch() -> tuple[Tensor, ...]:
        ids = rows(a.batch)
        return (ids, draft_anchors(ids, model.cfg.dspark_block_size, a.anchors)) if draft else (ids,)

    total, minutes_before, step = a.total_minutes or a.minutes, progress.minutes, progress.step
    recorded: RecordedStep | None = None
    if a.graph and not draft and step < a.dense_steps:
        options.sparse = True
        RecordedStep(compute, list(params.values()), *batch())  # fail now, not at the end of the dense steps
    last_save = mark = time.time()
    mark_step = step
    while True:
        spent = (time.time() - began) / 60
        fraction = min((minutes_before + spent) / total, 1.0)
        if spent >= a.minutes - SAVING_MINUTES or step >= a.max_steps:
            break
        lr = learning_rate(a.lr, step - warm, fraction)
        for group in (g for opt in opts for g in opt.param_groups):
            group["lr"] = lr
        sparse = draft or step >= a.dense_steps
        if a.graph and (recorded is None or sparse != options.sparse):
            options.sparse, recorded = sparse, None
            recorded = RecordedStep(compute, list(params.values()), *batch())
        options.sparse = sparse
        if recorded:
            loss, stats = recorded(*batch())
        else:
            loss, stats = compute(*batch())
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        for opt in opts:
            opt.step()
            if not recorded:
                opt.zero_grad(set_to_none=True)
        balance(moes, 1e-3 * (1 - fraction))
        step += 1
        if step % 100 == 0 or step <= 3:
            now, value = time.time(), float(loss.detach())
            speed = (step - mark_step) * a.batch * a.seq / max(now - mark, 1e-9)
            mark, mark_step = now, step
            values = {k: round(float(v), 4) for k, v in stats.items()}
            print(
                f"step {step} {minutes_before + spent:.2f}min loss {value:.4f} {values} grad {float(norm):.2f} "
                f"lr {lr:.2e} {speed / 1e3:.1f}k tok/s",
                flush=True,
            )
            if not math.isfinite(value):
                sys.exit("loss is not finite")
        if time.time() - last_save > a.save_minutes * 60:
            save_checkpoint(a, model, minutes_before + spent, step)
            last_save = time.time()
    progress = Progress(minutes_before + (time.time() - began) / 60, step)
    save_checkpoint(a, model, progress.minutes, step)
    if a.state:
        save_state(a, model, opts, progress)


def parse_arguments() -> argparse.Namespace:
    ap = argparse.ArgumentParser(description="Train or evaluate the miniature.")
    ap.add_argument("--data", required=True, type=Path, help="folder that training.miniature.corpus wrote")
    ap.add_argument("--out", default="out", type=Path)
    ap.add_argument("--phase", choices=("backbone", "dspark", "eval"), default="backbone")
    ap.add_argument("--preset", choices=("mini", "tiny"), default="mini")
    ap.add_argument("--minutes", type=float, default=8.0, help="wall time of this call, start-up included")
    ap.add_argument(
        "--total-minutes",
        type=float,
        help="length of the learning-rate schedule over all calls (default: --minutes)",
    )
    ap.add_argument("--max-steps", type=int, default=10**9)
    ap.add_argument("--resume", type=Path, help="checkpoint to continue from")
    ap.add_argument("--restart", action="store_true", help="with --resume: begin a new learning-rate schedule")
    ap.add_argument("--state", type=Path, help="full-precision state: read if present, written at the end")
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--seq", type=int, default=1024)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--dense-steps", type=int, default=400, help="first steps attend all compressed entries")
    ap.add_argument("--index-weight", type=float, default=0.3)
    ap.add_argument("--anchors", type=int, default=24, help="draft blocks a row")
    ap.add_argument("--save-minutes", type=float, default=3.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument(
        "--graph",
        action="store_true",
        help="replay each step as a CUDA graph (about twice as fast at batch 32)",
    )
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return ap.parse_args()


def main() -> None:
    a, began = parse_arguments(), time.time()
    device = torch.device(a.device)
    torch.backends.cuda.matmul.allow_tf32 = True
    model, progress = start(a, device)
    model.opts.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model.opts.fast_attention, model.opts.exact_ties = device.type == "cuda", False
    if a.phase == "eval":
        evaluate(a, model)
    else:
        train(a, model, progress, began)


if __name__ == "__main__":
    main()
