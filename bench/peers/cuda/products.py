"""Yardsticks for products with many rows, on this device: torch's row-wise FP8 product, its grouped form and its bf16
product, at the shapes of fathom/backend/cuda/cuda_bench.cpp. Prints one JSON object a line. Random codes of all sizes,
as there: zeros or small numbers run faster. Medians of 7 x 5 or 20 launches after 100 ms of the same work."""
import json
import statistics

import torch


def codes(*shape):
    raw = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda").bitwise_and_(0xBF)
    return raw.view(torch.float8_e4m3fn)


def time(name, shape, operations, launch):
    launch()
    torch.cuda.synchronize()
    count = 5 if operations > 3e11 else 20
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    warm = 0.0
    while warm < 100:
        begin.record()
        for _ in range(4):
            launch()
        end.record()
        end.synchronize()
        warm += begin.elapsed_time(end)
    times = []
    for _ in range(7):
        begin.record()
        for _ in range(count):
            launch()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / count)
    median = statistics.median(times)
    tflops = operations / median * 1e-9
    print(json.dumps({"peer": name, "shape": shape, "us": round(median * 1e3, 1), "tflops": round(tflops, 1)}), flush=True)


def fp8_rows(m, n, k):
    a, b = codes(m, k), codes(n, k)
    one = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
    time("torch._scaled_mm row-wise fp8", [m, n, k], 2.0 * m * n * k,
         lambda: torch._scaled_mm(a, b.t(), one[0], one[1], out_dtype=torch.bfloat16))


def fp8_grouped(experts, rows, n, k):
    a = codes(experts * rows, k)
    b = torch.empty(experts, n, k, dtype=torch.uint8, device="cuda")
    for e in range(experts):
        b[e] = codes(n, k).view(torch.uint8)
    b = b.view(torch.float8_e4m3fn).transpose(1, 2)
    scales = torch.rand(experts * rows, device="cuda"), torch.rand(experts, n, device="cuda")
    ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * rows
    time("torch._scaled_grouped_mm row-wise fp8", [experts, rows, n, k], 2.0 * experts * rows * n * k,
         lambda: torch._scaled_grouped_mm(a, b, scales[0], scales[1], offs=ends, out_dtype=torch.bfloat16))


def bf16(m, n, k):
    a = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(n, k, dtype=torch.bfloat16, device="cuda")
    time("torch.mm bf16", [m, n, k], 2.0 * m * n * k, lambda: torch.mm(a, b.t()))


if __name__ == "__main__":
    torch.manual_seed(1)
    for rows in (512, 2048, 8192):
        fp8_rows(rows, 4608, 5120)
    for n, k in ((2304, 5120), (5120, 2304)):
        fp8_grouped(384, 128, n, k)
        torch.cuda.empty_cache()
    bf16(8192, 4608, 5120)
    bf16(8192, 8192, 8192)
    bf16(256, 129280, 5120)
