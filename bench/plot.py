#!/usr/bin/env python3
"""A roofline picture of what `fathom bench kernels --json` measured.

    fathom bench kernels --json > kernels.jsonl
    bench/plot.py kernels.jsonl docs/images/roofline.svg [--threads 2] [--model flash]
    bench/plot.py kernels.jsonl --table [--rows 1,512] [--model flash]      the same as a table in Markdown

Across: operations for each byte that has to be read or written, as the formats count them. Up: operations a second. The roofs are this
machine's peaks of the same run: memory and caches slope, arithmetic is flat; a point below its roof leaves that much unused. Plain SVG
without any library; a name that ends in .png is drawn too where matplotlib is installed.
"""

import argparse
import json
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 980, 620, 80, 210, 48, 64
COLOURS = "#0b6e99 #d9480f #2b8a3e #862e9c #c2255c #5c5f66 #e67700".split()
# What the picture shows, each in a colour of its own: full marks for what multiplies weights or reads keys, hollow ones behind them.
SERIES = [
    ("linear", "bf16", "linear, BF16"), ("linear", "fp8", "linear, FP8"), ("linear", "mxfp4", "linear, MXFP4"),
    ("grouped_linear", "mxfp4", "experts, MXFP4"), ("latent_attention", None, "latent attention"), ("select_rows", None, "index scores"),
    ("gate", None, "gate"), ("stream_mixes", None, "mHC mixes"), ("stream_spread", None, "mHC spread"), ("rms_norm", None, "RMSNorm"),
    ("swiglu", None, "SwiGLU"), ("rope", None, "RoPE"),
]  # fmt: skip


def fail(text: str) -> None:
    sys.exit(f"bench/plot.py: {text}")


def read(path: str) -> list[dict]:
    try:
        rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    except (OSError, ValueError) as error:
        fail(f"{error} ({path}): give it what fathom bench kernels --json printed.")
    if not any(row.get("op") == "peak memory" for row in rows):
        fail(f"no peaks in it ({path}): give it what fathom bench kernels --json printed.")
    return rows


def series_of(rows: list[dict]) -> list[tuple[str, list[tuple[float, float, str]]]]:
    out = []
    for op, weights, name in SERIES:
        points = [
            (r["gflops"] / r["gbps"], r["gflops"], f"{name} {r['shape']} {r['place']}, {r['rows']} rows: {r['gflops']:.0f} GFLOP/s, "
             f"{r['gbps']:.1f} GB/s, {100 * r['share']:.0f} % of {r['bound']}")
            for r in rows
            if r["op"] == op and weights in (None, r["weights"]) and r["gflops"] > 0 and r["gbps"] > 0
        ]  # fmt: skip
        if points:
            out.append((name, sorted(points)))
    return out


def roofs_of(rows: list[dict]) -> tuple[dict[str, float], dict[str, float]]:
    names = ("memory", "memory, large pages", "l3", "l2", "l1")
    slopes = {name: r["gbps"] for name in names for r in rows if r["op"] == f"peak {name}"}
    flats = {name: r["gflops"] for name in ("int8", "bf16", "f32") for r in rows if r["op"] == f"peak {name}"}
    return slopes, flats


def powers(low: float, high: float) -> list[float]:
    return [10.0**p for p in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def svg(title: str, rows: list[dict]) -> str:
    series, (slopes, flats) = series_of(rows), roofs_of(rows)
    xs = [x for _, points in series for x, _, _ in points]
    ys = [y for _, points in series for _, y, _ in points]
    low_x, high_x = min(xs) / 1.6, max(xs) * 1.6
    low_y, high_y = min(ys) / 1.6, max(flats.values()) * 1.6
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at_x(x: float) -> float:
        return LEFT + plot_width * math.log(x / low_x) / math.log(high_x / low_x)

    def at_y(y: float) -> float:
        return HEIGHT - BOTTOM - plot_height * math.log(y / low_y) / math.log(high_y / low_y)

    def text(x: float, y: float, what: str, anchor: str = "start", more: str = "") -> str:
        what = what.replace("&", "&amp;").replace("<", "&lt;")
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{what}</text>'

    def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>', text(LEFT, 24, title, more=' font-size="14"'),
        f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{plot_width}" height="{plot_height}"/></clipPath>',
    ]  # fmt: skip
    for x in powers(low_x, high_x):
        out += [line(at_x(x), TOP, at_x(x), HEIGHT - BOTTOM, 'stroke="#e5e5e5"'), text(at_x(x), HEIGHT - BOTTOM + 18, f"{x:g}", "middle")]
    for y in powers(low_y, high_y):
        out += [line(LEFT, at_y(y), WIDTH - RIGHT, at_y(y), 'stroke="#e5e5e5"'), text(LEFT - 8, at_y(y) + 4, f"{y:g}", "end")]
    out.append(text(LEFT + plot_width / 2, HEIGHT - 18, "operations a byte (FLOP/B)", "middle"))
    middle = TOP + plot_height / 2
    out.append(text(22, middle, "GFLOP/s", "middle", f' transform="rotate(-90 22 {middle:.0f})"'))
    top = max(flats.values())
    for number, (name, rate) in enumerate(slopes.items()):
        x2 = top / rate
        out.append(line(at_x(low_x), at_y(low_x * rate), at_x(x2), at_y(top), 'stroke="#555" stroke-dasharray="6 3" clip-path="url(#plot)"'))
        angle = math.degrees(math.atan2(at_y(low_x * rate) - at_y(top), at_x(x2) - at_x(low_x)))
        x = max(low_x * 1.1, low_y / rate * 1.6) * (1, 2.6, 1, 1.9, 1)[number % 5]  # neighbours' names stand apart
        place = f' transform="rotate({-angle:.1f} {at_x(x):.1f} {at_y(x * rate) - 4:.1f})" fill="#555"'
        label = name if name.startswith("memory") else name.upper()
        out.append(text(at_x(x), at_y(x * rate) - 4, f"{label} {rate:.0f} GB/s", more=place))
    for name, rate in flats.items():
        out.append(line(at_x(low_x), at_y(rate), WIDTH - RIGHT, at_y(rate), 'stroke="#555" stroke-dasharray="6 3"'))
        out.append(text(WIDTH - RIGHT + 6, at_y(rate) + 4, f"{name} {rate:.0f}", more=' fill="#555"'))
    for number, (name, points) in reversed(list(enumerate(series))):  # full marks lie above
        colour = COLOURS[number % len(COLOURS)]
        paint = f'fill="{colour}" fill-opacity="0.75"' if number < len(COLOURS) else f'fill="white" stroke="{colour}" stroke-width="2"'
        for x, y, what in points:
            what = what.replace("&", "&amp;").replace("<", "&lt;")
            out.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="4" {paint}><title>{what}</title></circle>')
        y = TOP + plot_height - 18 * (len(series) - 1 - number)
        out += [f'<circle cx="{WIDTH - RIGHT + 14}" cy="{y - 4}" r="4" {paint}/>', text(WIDTH - RIGHT + 24, y, name)]
    return "\n".join([*out, "</svg>"]) + "\n"


def table(rows: list[dict], wanted: set[int]) -> str:
    """A line for each case and number of rows; times and shares of each number of threads beside each other."""
    threads = sorted({r["threads"] for r in rows})
    cases: dict[tuple, dict[int, dict]] = {}
    for r in rows:
        if not r["op"].startswith("peak ") and r["rows"] in wanted:
            cases.setdefault((r["op"], r["weights"], r["shape"], r["place"], r["rows"]), {})[r["threads"]] = r
    head = "| operation | weights | shape | in the model | rows | bound |" + "".join(
        f" {n} thread{'s' if n > 1 else ''}: us | GB/s | GFLOP/s | share |" for n in threads
    )
    lines = [head, "| --- | --- | --- | --- | ---: | --- |" + " ---: |" * (4 * len(threads))]
    for (op, weights, shape, place, count), by in cases.items():
        cells = [op, weights, shape, place, f"{count:,}", " / ".join(dict.fromkeys(r["bound"] for r in by.values()))]
        for n in threads:
            r = by.get(n)
            digits = 0 if r and r["us"] >= 100 else 2
            cells += [f"{r['us']:,.{digits}f}", f"{r['gbps']:.1f}", f"{r['gflops']:.1f}", f"{100 * r['share']:.0f} %"] if r else [""] * 4
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def png(title: str, rows: list[dict], path: str) -> None:
    try:
        from matplotlib import pyplot
    except ImportError:
        fail(f"matplotlib is not installed ({path}): name the picture .svg, or install it.")
    series, (slopes, flats) = series_of(rows), roofs_of(rows)
    figure, axes = pyplot.subplots(figsize=(11, 7))
    for name, points in series:
        axes.loglog([p[0] for p in points], [p[1] for p in points], "o", label=name, alpha=0.75)
    low, high = axes.get_xlim()
    top = max(flats.values())
    for name, rate in slopes.items():
        axes.loglog([low, top / rate], [low * rate, top], "--", color="#555")
        axes.annotate(f"{name} {rate:.0f} GB/s", (low, low * rate))
    for name, rate in flats.items():
        axes.axhline(rate, linestyle="--", color="#555")
        axes.annotate(f"{name} {rate:.0f}", (high, rate))
    axes.set(title=title, xlabel="operations a byte (FLOP/B)", ylabel="GFLOP/s")
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="FILE.jsonl")
    parser.add_argument("picture", nargs="?", metavar="FILE.svg|FILE.png")
    parser.add_argument("--table", action="store_true", help="print a table instead of drawing")
    parser.add_argument("--rows", default="1,512", metavar="N,N", help="of the table (default: %(default)s)", dest="wanted")
    parser.add_argument("--threads", type=int, help="default: the most that were measured")
    parser.add_argument("--model", default="flash", choices=("flash", "miniature"), help="default: %(default)s")
    a = parser.parse_args()
    rows = read(a.rows)
    if a.table:
        return print(table([r for r in rows if r["model"] == a.model], {int(n) for n in a.wanted.split(",")}))
    if not a.picture:
        parser.error("name a picture, or say --table")
    threads = a.threads or max(r["threads"] for r in rows)
    rows = [r for r in rows if r["threads"] == threads and r["model"] in (a.model, "machine")]
    if not series_of(rows) or not any(r["op"] == "peak memory" for r in rows):
        fail(f"nothing was measured with {threads} threads and --model {a.model} ({a.rows}): choose others.")
    machine, model = rows[0]["machine"], {"flash": "V4.1 Flash", "miniature": "the miniature"}[a.model]
    title = f"Shapes of {model} on {machine}, {threads} thread{'s' if threads > 1 else ''}, commit {rows[0]['commit']}"
    if a.picture.endswith(".png"):
        png(title, rows, a.picture)
    else:
        Path(a.picture).write_text(svg(title, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
