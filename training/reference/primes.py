"""Table sizes of Engram: primes, so that the columns of a hash never repeat in step."""

from __future__ import annotations

from training.reference.config import Config


def _next_primes(start: int, count: int, seen: set[int]) -> list[int]:
    def is_prime(n: int) -> bool:
        if n < 2:
            return False
        d = 2
        while d * d <= n:
            if n % d == 0:
                return False
            d += 1
        return True

    out, cur = [], start
    for _ in range(count):
        cur += 1
        while not is_prime(cur) or cur in seen:
            cur += 1
        seen.add(cur)
        out.append(cur)
    return out


def engram_primes(cfg: Config) -> list[list[int]]:
    """Bucket counts, one list per Engram layer, ordered n-gram size major and head minor.

    Each (n-gram, head) column gets the next prime not used before anywhere; the search restarts
    from engram_vocab_size - 1 for every n-gram size of every layer.
    """
    seen: set[int] = set()
    table = []
    for _ in cfg.engram_layer_ids:
        row: list[int] = []
        for _ in range(cfg.engram_max_ngram_size - 1):
            row += _next_primes(cfg.engram_vocab_size - 1, cfg.engram_n_heads, seen)
        table.append(row)
    return table
