#!/usr/bin/env python3
"""torch's side of `fathom bench kernels --backend cuda --peers`, asked for one sample at a time (fathom/cli/kernel_peer.h).

  torch_fp8    products of E4M3 codes with a scale for each row of both sides: torch._scaled_mm, torch._scaled_grouped_mm
  torch_bf16   torch.mm; scaled_dot_product_attention, one head of keys for all queries; for FP8 and MXFP4 weights too

Calls are captured in a CUDA graph, as fathom's are. Numbers are random, of both signs and many sizes: zeros and small numbers run
faster. Reads a line of JSON, answers with one, until its input ends.
"""

import json
import sys

import torch


def codes(*shape: int) -> torch.Tensor:
    raw = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda").bitwise_and_(0xBF)
    return raw.view(torch.float8_e4m3fn)


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def linear_fp8(a: dict):
    if a["weights"] == "bf16":
        return None
    rows, n, k, copies = a["rows"], a["n"], a["k"], a["copies"]
    x, weights = codes(rows, k), [codes(n, k).t() for _ in range(copies)]
    scales = torch.rand(rows, 1, device="cuda"), torch.rand(1, n, device="cuda")
    return lambda i: torch._scaled_mm(x, weights[i % copies], scales[0], scales[1], out_dtype=torch.bfloat16)


def linear_bf16(a: dict):
    copies = a["copies"]
    x, weights = bf16(a["rows"], a["k"]), [bf16(a["n"], a["k"]).t() for _ in range(copies)]
    return lambda i: torch.mm(x, weights[i % copies])


def grouped_fp8(a: dict):
    rows, n, k, experts = a["rows"] * a["chosen"], a["n"], a["k"], a["experts"]
    x = codes(rows, k)
    weights = torch.empty(experts, n, k, dtype=torch.uint8, device="cuda")
    for e in range(experts):
        weights[e] = codes(n, k).view(torch.uint8)
    weights = weights.view(torch.float8_e4m3fn).transpose(1, 2)
    scales = torch.rand(rows, device="cuda"), torch.rand(experts, n, device="cuda")
    chosen = torch.rand(a["rows"], experts).topk(a["chosen"], dim=1).indices.flatten()
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32).cuda()
    return lambda i: torch._scaled_grouped_mm(x, weights, scales[0], scales[1], offs=ends, out_dtype=torch.bfloat16)


def attention_bf16(a: dict):
    rows, heads, channels, keys = a["rows"], a["heads"], a["channels"], a["keys"]
    queries = bf16(rows, 1, heads, channels)  # heads stand for queries of the one head of keys
    past = [bf16(rows, 1, keys, channels) for _ in range(4)]
    call = torch.nn.functional.scaled_dot_product_attention
    return lambda i: call(queries, past[i % 4], past[i % 4])


MAKERS = {
    ("linear", "torch_fp8"): linear_fp8,
    ("linear", "torch_bf16"): linear_bf16,
    ("grouped_linear", "torch_fp8"): grouped_fp8,
    ("latent_attention", "torch_bf16"): attention_bf16,
}
NAMES = ["torch_fp8", "torch_bf16"]


class Peer:
    """One operation with its numbers: captured calls, and the time of one."""

    def __init__(self, call, seconds: float) -> None:
        self.call = call  # has the numbers that captured calls read
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(3):
                call(i)
        torch.cuda.synchronize()
        self.begin, self.end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.begin.record()
        for i in range(3):
            call(i)
        self.end.record()
        self.end.synchronize()
        self.calls = min(400, max(1, int(seconds * 3e3 / self.begin.elapsed_time(self.end))))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(self.calls):
                call(i)
        spent = 0.0
        while spent < 100:  # until the chip runs at the clock that it keeps
            spent += self.sample() * self.calls * 1e-3

    def sample(self) -> float:
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return 1e3 * self.begin.elapsed_time(self.end) / self.calls


def peers_of(asked: dict) -> dict:
    peers = {}
    for name in NAMES:
        make = MAKERS.get((asked["op"], name))
        try:
            call = make(asked) if make else None
            if call:
                peers[name] = Peer(call, asked["seconds"])
        except (RuntimeError, ValueError) as error:  # a shape that it refuses
            print(f"torch_side: {name}: {asked}: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.cuda.synchronize()
    return peers


def main() -> None:
    torch.manual_seed(1)
    print(json.dumps({"peers": NAMES, "version": f"torch {torch.__version__}"}), flush=True)
    last, peers = None, {}
    with torch.inference_mode():
        for line in sys.stdin:
            asked = json.loads(line)
            if asked != last:
                peers = {}  # before the next ones are made
                torch.cuda.empty_cache()
                peers, last = peers_of(asked), asked
            else:
                for peer in peers.values():
                    peer.sample()  # wakes the device
            print(json.dumps({"us": {name: peer.sample() for name, peer in peers.items()}}), flush=True)


if __name__ == "__main__":
    main()
