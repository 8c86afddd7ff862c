"""Tokenizer helpers: the special tokens of the family and the Engram vocabulary compression."""

from __future__ import annotations

# Ids 0..2 are fixed by the family (BOS, EOS, PAD). The rest of this order is our own: the big
# tokenizer puts these at the end of a 129 280-entry vocabulary.
SPECIAL = [
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜draft▁noise｜>",
    "<｜image｜>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜ref｜>",
    "<｜/ref｜>",
    "<｜box｜>",
    "<｜/box｜>",
    "<｜point｜>",
    "<｜/point｜>",
    "<｜polygon｜>",
    "<｜/polygon｜>",
    "<｜fim▁hole｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁end｜>",
]

# Split rules of the published tokenizer.json, in order.
SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def train_tokenizer(texts, vocab_size: int, path: str, digits: int = 3):
    """Byte-level BPE with the family's pre-tokenization and special tokens, saved as tokenizer.json.

    `digits` limits number pieces; the family uses 3, tiny models learn arithmetic better with 1.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    splits = [SPLITS[0].replace("3", str(digits)), *SPLITS[1:]]
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in splits]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(s, special=True, normalized=False) for s in SPECIAL]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tok.train_from_iterator(texts, trainer)
    while tok.get_vocab_size() % 64:  # the big tokenizer also ends in reserved tokens
        tok.add_special_tokens(
            [AddedToken(f"<｜reserved▁{tok.get_vocab_size():05d}｜>", special=True, normalized=False)]
        )
    tok.save(path)
    return tok


def compressed_token_map(path: str) -> tuple[list[int], int]:
    """Token id -> compressed id: tokens whose decoded text normalizes alike share one id.

    Normalization: NFKC, NFD, accents removed, lower case, blank runs to one space, trimmed (a
    token that is only blanks stays one space). Tokens that are not valid UTF-8 alone are keyed by
    their vocabulary spelling. Ids are given in order of first appearance.
    """
    from tokenizers import Regex, Tokenizer, normalizers

    tok = Tokenizer.from_file(path)
    keep = "\ue000"
    norm = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), keep),
            normalizers.Strip(),
            normalizers.Replace(keep, " "),
        ]
    )
    seen: dict[str, int] = {}
    table = []
    for i in range(tok.get_vocab_size()):
        text = tok.decode([i], skip_special_tokens=False)
        key = tok.id_to_token(i) if "\ufffd" in text else (norm.normalize_str(text) or text)
        table.append(seen.setdefault(key, len(seen)))
    return table, len(seen)
