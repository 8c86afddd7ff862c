"""Times the PyTorch reference of training/ as `fathom bench` times fathom: same prompts, same steps, same JSON lines.

Called by bench/compare_reference/run with the interpreter of .venv-training, in the repository root:

  python -m bench.compare_reference.torch_side prefill --model DIR --threads 2 --lengths 64,256,640
  python -m bench.compare_reference.torch_side decode --model DIR --threads 2 --lengths 64 --cached 256 --drafts 5
  python -m bench.compare_reference.torch_side first-token --model DIR --threads 2 --ids 0,6,42

The reference runs in float32 with cache rounding, the arithmetic that the golden vectors use: on a CPU its
bfloat16 mode is slower, because PyTorch rounds activations by separate calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from training.reference import checkpoint
from training.reference.cache import Cache
from training.reference.generate import propose
from training.reference.model import Model

MASK = 0xFFFFFFFF


def philox(key: int, counter: list[int]) -> list[int]:
    """Philox4x32-10, as fathom/base/philox.h: the prompts of both sides come from it."""
    k0, k1 = key & MASK, key >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ k0, b & MASK, (a >> 32) ^ counter[3] ^ k1, a & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return counter


def random_prompt(length: int, vocabulary: int) -> torch.Tensor:
    """The tokens that `fathom bench` gives its first sequence."""
    return torch.tensor([[philox(0, [0, i, 0, 0])[0] % vocabulary for i in range(length)]])


def prefill(model: Model, length: int) -> float:
    """Seconds for a prompt of `length` tokens into an empty cache, its first answer token included."""
    ids = random_prompt(length, model.cfg.vocab_size)
    begin = time.perf_counter()
    int(model(ids, Cache.new(model.cfg)).logits[0, -1].argmax())
    return time.perf_counter() - begin


def decode(model: Model, steps: int, cached: int) -> tuple[float, int]:
    """Seconds for `steps` greedy tokens behind a prompt of `cached`; no drafts are accepted."""
    cache = Cache.new(model.cfg)
    token = int(model(random_prompt(cached, model.cfg.vocab_size), cache).logits[0, -1].argmax())
    begin = time.perf_counter()
    for _ in range(steps):
        token = int(model(torch.tensor([[token]]), cache).logits[0, -1].argmax())
    return time.perf_counter() - begin, 0


def decode_with_drafts(model: Model, steps: int, cached: int) -> tuple[float, int]:
    """Seconds and accepted drafts of `steps` rounds: verify a block, keep what is right, draft again."""
    cache = Cache.new(model.cfg)
    out = model(random_prompt(cached, model.cfg.vocab_size), cache)
    model.extend_draft_cache(cache, out.main_hidden, 0)
    token, accepted = int(out.logits[0, -1].argmax()), 0
    drafts = propose(model, cache, token).tokens
    begin = time.perf_counter()
    for _ in range(steps):
        start = cache.length
        out = model(torch.tensor([[token, *drafts]]), cache)
        best = out.logits[0].argmax(-1).tolist()
        kept = next((i for i, draft in enumerate(drafts) if draft != best[i]), len(drafts))
        token, accepted = best[kept], accepted + kept
        cache.truncate(start + kept + 1, model.cfg.compress_ratios)
        model.extend_draft_cache(cache, out.main_hidden[:, : kept + 1], start)
        drafts = propose(model, cache, token).tokens
    return time.perf_counter() - begin, accepted


def report(values: dict[str, object], seconds: list[float], tokens: float, steps: int) -> None:
    median = statistics.median(seconds)
    line = {
        **values,
        "tokens_per_s": tokens / median,
        "ms": 1e3 * median / steps,
        "repeat": len(seconds),
        "spread": (max(seconds) - min(seconds)) / median,
    }
    print(json.dumps(line), flush=True)


def measure(run: Callable[[], tuple[float, int]], warmup: int, repeat: int) -> tuple[list[float], float]:
    """Seconds of each repeat, and the mean of the accepted drafts."""
    for _ in range(warmup):
        run()
    results = [run() for _ in range(repeat)]
    return [seconds for seconds, _ in results], statistics.mean(accepted for _, accepted in results)


def main() -> None:
    ap = argparse.ArgumentParser(description="Time the PyTorch reference.")
    ap.add_argument("what", choices=("prefill", "decode", "first-token"))
    ap.add_argument("--model", required=True)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--lengths", default="64", help="prefill: prompt tokens; decode: steps")
    ap.add_argument("--cached", type=int, default=256, help="decode: tokens of the prompt before")
    ap.add_argument("--drafts", type=int, default=0, help="0, or the block size of the model")
    ap.add_argument("--ids", default="0", help="first-token: the prompt")
    ap.add_argument("--repeat", type=int, default=5)
    ap.add_argument("--warmup", type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_grad_enabled(False)
    model = checkpoint.load(a.model).eval()
    if a.what == "first-token":
        ids = torch.tensor([[int(i) for i in a.ids.split(",")]])
        print(int(model(ids, Cache.new(model.cfg)).logits[0, -1].argmax()))
        return
    if a.drafts not in (0, model.cfg.dspark_block_size):
        ap.error(f"the reference drafts 0 or {model.cfg.dspark_block_size} tokens a round (--drafts)")
    fixed = {"batch": 1, "replay": "off", "numerics": "f32", "backend": "pytorch", "threads": a.threads}
    for length in (int(n) for n in a.lengths.split(",")):
        if a.what == "prefill":
            seconds, _ = measure(lambda n=length: (prefill(model, n), 0), a.warmup, a.repeat)
            case = {"bench": "prefill", "length": length, "cached": 0, "drafts": 0, **fixed}
            report({**case, "accepted_per_step": 0.0}, seconds, length, 1)
        else:
            run = partial(decode_with_drafts if a.drafts else decode, model, length, a.cached)
            seconds, accepted = measure(run, a.warmup, a.repeat)
            case = {"bench": "decode", "length": length, "cached": a.cached, "drafts": a.drafts, **fixed}
            report({**case, "accepted_per_step": accepted / length}, seconds, length + accepted, length)


if __name__ == "__main__":
    main()
