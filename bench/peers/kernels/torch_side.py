#!/usr/bin/env python3
"""torch's side of `fathom bench kernels --peers` on a processor: bf16 products (of single weights), asked for one sample at a time (fathom/cli/kernel_peer.h).

  torch    torch.nn.functional.linear on bf16, as a user calls it
  onednn   the same product by oneDNN with the weight in its own layout, which torch's compiler uses; its reorder is not timed

Reads a line of JSON, answers with one, until its input ends.
"""

import json
import sys
import time

import torch


class Weights:
    """Copies of one weight, so that a call finds the next one in no cache; the same in oneDNN's layout."""

    def __init__(self, rows: int, n: int, k: int, copies: int) -> None:
        one = (torch.rand(n, k) - 0.5).to(torch.bfloat16)
        self.plain = [one.clone() for _ in range(copies)]
        self.packed = [torch.ops.mkldnn._reorder_linear_weight(w, rows) for w in self.plain]
        self.x = (torch.rand(rows, k) - 0.5).to(torch.bfloat16)

    def of_torch(self, i: int):
        return torch.nn.functional.linear(self.x, self.plain[i % len(self.plain)])

    def of_onednn(self, i: int):
        packed = self.packed[i % len(self.packed)]
        return torch.ops.mkldnn._linear_pointwise(self.x, packed, None, "none", [], "")


def mean_us(call, seconds: float, begin: int, expected: dict, key: tuple) -> float:
    calls = expected.get(key)
    if calls is None:  # warm up, then see how many fit
        call(begin)
        start = time.perf_counter()
        call(begin + 1)
        calls = expected[key] = max(1, int(seconds / (time.perf_counter() - start)))
    else:
        call(begin - 1)  # wakes its threads
    start = time.perf_counter()
    for i in range(calls):
        call(begin + i)
    return 1e6 * (time.perf_counter() - start) / calls


def main() -> None:
    names = ["torch", "onednn"]
    print(json.dumps({"peers": names, "version": f"torch {torch.__version__}"}), flush=True)
    shape, weights, expected, done = None, None, {}, 0
    with torch.inference_mode():
        for line in sys.stdin:
            asked = json.loads(line)
            if asked["op"] != "linear":
                print(json.dumps({"us": {}}), flush=True)
                continue
            wanted = tuple(asked[name] for name in ("rows", "n", "k", "copies"))
            if wanted != shape:
                weights = None  # before the next ones are made
                weights, shape, expected = Weights(*wanted), wanted, {}
            if torch.get_num_threads() != asked["threads"]:
                torch.set_num_threads(asked["threads"])
            us = {}
            for name in names:
                key = (name, asked["threads"])
                us[name] = mean_us(getattr(weights, "of_" + name), asked["seconds"], done, expected, key)
                done += expected[key]
            print(json.dumps({"us": us}), flush=True)


if __name__ == "__main__":
    main()
