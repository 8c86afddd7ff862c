"""Writes golden test vectors.

  python -m training.golden.write --out DIR                                        tiny random checkpoint and its vectors
  python -m training.golden.write --out DIR --checkpoint CKPT --eval eval.jsonl    vectors of a trained checkpoint

DIR/cases.json           one entry per case: settings, tokens produced, scalar results; `config` names the checkpoint
DIR/<case>.safetensors   tensors of that case
DIR/tiny                 (first form) checkpoint with random weights in the official format (+ tokenizer.json)
DIR/quant.safetensors    (first form) quantizer inputs with stored bytes, scales and round-trip values
DIR/generation.json      (second form) greedy outputs on held-out prompts, with and without drafts
DIR/engram_token_map.json  (second form) the compressed vocabulary that the checkpoint's tokenizer yields

Every number comes from the checkpoint as stored, i.e. after quantization. README.md has the meaning
of the tensors and the tolerances.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from training.golden.cases import dspark_case, full_and_replay
from training.golden.quantizers import quant_vectors
from training.golden.random_checkpoint import make_checkpoint
from training.reference import checkpoint
from training.reference.generate import generate, generate_dspark
from training.reference.tensorfile import save_file
from training.reference.vocabulary import compressed_token_map


def write_cases(out: Path, config: str, cases: list[dict]) -> None:
    (out / "cases.json").write_text(json.dumps({"config": config, "cases": cases}, indent=1) + "\n")
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{len(cases)} cases, {size / 1e6:.2f} MB in total")


def random_cases(out: Path) -> None:
    """The vectors of the tiny random checkpoint, which is written first."""
    make_checkpoint(out / "tiny")
    save_file(quant_vectors(), out / "quant.safetensors")
    model = checkpoint.load(out / "tiny").eval()
    cfg, g = model.cfg, torch.Generator().manual_seed(5)
    ids = torch.randint(5, cfg.vocab_size, (1, 97), generator=g)
    more = torch.randint(5, cfg.vocab_size, (12,), generator=g).tolist()
    image = torch.zeros(1, 97, dtype=torch.bool)
    image[:, 20:33] = True
    cases = full_and_replay(model, out, ids, more, cfg.sliding_window, image)
    cases.append(dspark_case(model, out, "dspark_f32", ids, 40))
    write_cases(out, "tiny/config.json", cases)


def trained_cases(directory: Path, held: list[dict], out: Path) -> None:
    """A long prompt (windows, top-k and candidate blocks all cut), bounded replay, draft rounds until the stop token."""
    model = checkpoint.load(directory).eval()
    cfg, stop = model.cfg, (model.cfg.eos_token_id,)

    def longest(task: str, part: str) -> dict:
        return max((c for c in held if c["task"] == task), key=lambda c: len(c[part]))

    long, tools = longest("needle", "prompt_ids"), longest("tools_task", "completion_ids")
    ids, w, n = torch.tensor([long["prompt_ids"]]), cfg.sliding_window, len(long["prompt_ids"])
    replay = w + 8  # at least the window and one draft block
    # Rows on both sides of each place where something begins to be cut, some in between, and the end.
    steps = {
        0,
        1,
        2,
        3,
        w - 1,
        w,
        w + 1,
        2 * cfg.index_topk - 1,
        2 * cfg.index_topk,
        2 * cfg.index_topk + 1,
        n // 3,
        n // 2,
    }
    rows = sorted({r for r in steps if r < n} | set(range(n - 12, n)))
    cases = full_and_replay(model, out, ids, long["completion_ids"][:-1], replay, rows=rows)
    cases.append(dspark_case(model, out, "dspark_f32", torch.tensor([tools["prompt_ids"]]), 120, stop=stop))
    cases.append(dspark_case(model, out, "dspark_replay_f32", ids, 60, replay=replay, stop=stop))
    write_cases(out, "../../mini/config.json", cases)


def generation_file(directory: Path, held: list[dict], out: Path, per_task: int) -> None:
    """Greedy outputs of a trained checkpoint on held-out prompts, with and without drafts."""
    model = checkpoint.load(directory).eval()
    stop, rows, seen = (model.cfg.eos_token_id,), [], {}
    for case in held:
        if seen.setdefault(case["task"], 0) >= per_task:
            continue
        seen[case["task"]] += 1
        plain = generate(model, case["prompt_ids"], 200, stop=stop)
        spec = generate_dspark(model, case["prompt_ids"], 200, stop=stop)
        best_two = [p.topk(2).values for p in plain.logits]
        first_five = plain.logits[0].topk(5)
        rows.append(
            {
                "task": case["task"],
                "prompt": case["prompt"],
                "expected": case["completion"],
                "prompt_ids": case["prompt_ids"],
                "greedy_ids": plain.tokens,
                "correct": plain.tokens == case["completion_ids"],
                "same_with_drafts": plain.tokens == spec.tokens,
                "accepted_per_round": spec.accepted,
                "min_top2_gap": round(min(float(v[0] - v[1]) for v in best_two), 4),
                "first_logits_top5": [[int(i), round(float(v), 4)] for v, i in zip(*first_five, strict=True)],
            }
        )
    (out / "generation.json").write_text(
        json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    accepted = [x for r in rows for x in r["accepted_per_round"]]
    print(
        f"{len(rows)} prompts: {sum(r['correct'] for r in rows)} as expected, "
        f"{sum(r['same_with_drafts'] for r in rows)} equal with drafts, "
        f"{sum(accepted) / max(len(accepted), 1):.2f} draft tokens accepted per round"
    )


def main() -> None:
    ap = argparse.ArgumentParser(description="Write golden test vectors.")
    ap.add_argument("--out", default="golden", type=Path, help="folder to write (default: golden)")
    ap.add_argument("--checkpoint", type=Path, help="trained checkpoint instead of the tiny random one")
    ap.add_argument("--eval", type=Path, help="eval.jsonl for --checkpoint")
    ap.add_argument("--per-task", type=int, default=4, help="prompts of each task in generation.json")
    a = ap.parse_args()
    if bool(a.checkpoint) != bool(a.eval):
        ap.error("--checkpoint and --eval go together")
    torch.set_num_threads(2)  # the order of sums, and so the last bits, depend on it
    a.out.mkdir(parents=True, exist_ok=True)
    if not a.checkpoint:
        return random_cases(a.out)
    held = [json.loads(line) for line in a.eval.read_text(encoding="utf-8").splitlines()]
    table, size = compressed_token_map(str(a.checkpoint / "tokenizer.json"))
    (a.out / "engram_token_map.json").write_text(json.dumps({"size": size, "map": table}))
    generation_file(a.checkpoint, held, a.out, a.per_task)
    trained_cases(a.checkpoint, held, a.out)


if __name__ == "__main__":
    main()
