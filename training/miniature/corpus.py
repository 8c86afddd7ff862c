"""Synthetic training corpus and tokenizer of the miniature.

  python -m training.miniature.corpus --out DIR [--tokens 32000000] [--vocab 4096] [--seed 0]

writes DIR/tokenizer.json (an existing one is kept), DIR/engram_token_map.json, DIR/train.bin and
DIR/val.bin (uint16 token ids, documents back to back, each BOS ... EOS), and DIR/eval.jsonl
(held-out prompts with the exact expected completions).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from training.miniature.prompt import Chat, assistant_text, render
from training.miniature.tasks import (
    arithmetic,
    code,
    copy_task,
    facts,
    greet,
    json_task,
    multi_turn,
    needle,
    words_task,
)
from training.miniature.tool_tasks import tools_task
from training.reference.vocabulary import compressed_token_map, train_tokenizer

TASKS = {  # share of documents; the order is part of the corpus
    arithmetic: 26,
    words_task: 12,
    copy_task: 9,
    needle: 10,
    json_task: 9,
    facts: 9,
    code: 6,
    greet: 4,
    tools_task: 11,
    multi_turn: 8,
}
# Offsets between the seeds of the parts, so that a corpus never holds its own evaluation set.
TOKENIZER_SEED, VALIDATION_SEED, EVALUATION_SEED = 999, 1_000_000, 2_000_000


def documents(seed: int) -> Iterator[Chat]:
    """Endless; the same seed gives the same documents."""
    r = random.Random(seed)
    tasks, weights = list(TASKS), list(TASKS.values())
    while True:
        yield r.choices(tasks, weights)[0](r)


def eval_cases(seed: int, per_task: int) -> Iterator[dict[str, str]]:
    """Prompt and expected completion of the last assistant turn."""
    for task in TASKS:
        r = random.Random(f"{seed}-{task.__name__}")
        for _ in range(per_task):
            chat = task(r)
            opened = "<think>" if chat.thinking else "</think>"  # the prompt ends with it
            answer = assistant_text(chat.turns[-1], chat.thinking).removeprefix(opened)
            yield {"task": task.__name__, "prompt": render(chat, len(chat.turns) - 1), "completion": answer}


def write_tokens(tokenizer: Tokenizer, seed: int, tokens: int, file: Path) -> None:
    docs, written = documents(seed), 0
    with open(file, "wb") as f:
        while written < tokens:
            texts = [render(chat) for chat in islice(docs, 4000)]
            batch = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            ids = np.concatenate([np.array(e.ids, dtype=np.uint16) for e in batch])[: tokens - written]
            f.write(ids.tobytes())
            written += len(ids)
    print(f"{file.name}: {written} tokens")


def write_cases(tokenizer: Tokenizer, seed: int, per_task: int, file: Path) -> None:
    with open(file, "w", encoding="utf-8") as f:
        for case in eval_cases(seed, per_task):
            ids = {
                f"{k}_ids": tokenizer.encode(case[k], add_special_tokens=False).ids
                for k in ("prompt", "completion")
            }
            f.write(json.dumps({**case, **ids}, ensure_ascii=False) + "\n")


def main() -> None:
    ap = argparse.ArgumentParser(description="Write the miniature's corpus, tokenizer and evaluation set.")
    ap.add_argument("--out", default="data", type=Path, help="folder to write (default: data)")
    ap.add_argument("--tokens", type=int, default=32_000_000)
    ap.add_argument("--val-tokens", type=int, default=300_000)
    ap.add_argument("--vocab", type=int, default=4096, help="upper bound of the vocabulary that BPE learns")
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    file = a.out / "tokenizer.json"
    if not file.exists():
        sample = (render(chat) for chat in islice(documents(a.seed + TOKENIZER_SEED), 20_000))
        train_tokenizer(sample, a.vocab, str(file), digits=1)
    tokenizer = Tokenizer.from_file(str(file))
    table, size = compressed_token_map(str(file))
    (a.out / "engram_token_map.json").write_text(json.dumps({"size": size, "map": table}))
    write_tokens(tokenizer, a.seed + VALIDATION_SEED, a.val_tokens, a.out / "val.bin")
    write_tokens(tokenizer, a.seed, a.tokens, a.out / "train.bin")
    write_cases(tokenizer, a.seed + EVALUATION_SEED, 40, a.out / "eval.jsonl")
    print(f"vocabulary {tokenizer.get_vocab_size()}, compressed {size}")


if __name__ == "__main__":
    main()
