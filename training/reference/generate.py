"""Greedy and sampled generation, plain or with DSpark drafts.

Speculative decoding here is lossless: with temperature 0 it yields exactly the plain greedy output,
otherwise it follows the target distribution (accept with probability min(1, p/q), else draw from
the normalized positive part of p - q).

  python -m training.reference.generate CHECKPOINT_DIR "prompt text" [--max-tokens N] [--temperature T] [--dspark]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import torch
from torch import Tensor

from training.reference import checkpoint
from training.reference.cache import Cache
from training.reference.model import Model


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0  # 0 takes the most likely token
    top_p: float = 1.0
    seed: int = 0


GREEDY = Sampling()


@dataclass
class Draft:
    tokens: list[int]
    confidence: list[float]  # acceptance probability per token
    probs: Tensor  # [n, V] proposal distribution


@dataclass
class Result:
    tokens: list[int]
    logits: list[Tensor] = field(default_factory=list)  # target logits each token was chosen from
    drafts: list[Draft] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)  # accepted draft tokens per round


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities [..., V] that a token is drawn from; one-hot when greedy."""
    if sampling.temperature <= 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    p = (logits / sampling.temperature).softmax(-1)
    if sampling.top_p < 1:
        ordered, index = p.sort(-1, descending=True)
        ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= sampling.top_p, 0)
        p = torch.zeros_like(p).scatter_(-1, index, ordered)
        p = p / p.sum(-1, keepdim=True)
    return p


def pick(p: Tensor, rng: torch.Generator | None) -> int:
    """A token of the distribution p [V]; a certain one costs no random number."""
    return int(p.argmax()) if float(p.max()) == 1.0 else int(torch.multinomial(p, 1, generator=rng))


@torch.no_grad()
def generate(
    model: Model,
    prompt: list[int],
    max_tokens: int,
    *,
    sampling: Sampling = GREEDY,
    stop: tuple[int, ...] = (),
    replay: int | None = None,
) -> Result:
    """One token a forward call, until `max_tokens` or a token of `stop`, which is kept."""
    dev = model.embed.weight.device
    rng = torch.Generator(dev).manual_seed(sampling.seed)
    cache = Cache.new(model.cfg)
    out = model(torch.tensor([prompt], device=dev), cache, replay=replay)
    res = Result([])
    while True:
        logits = out.logits[0, -1]
        token = pick(distribution(logits, sampling), rng)
        res.tokens.append(token)
        res.logits.append(logits)
        if len(res.tokens) >= max_tokens or token in stop:
            return res
        out = model(torch.tensor([[token]], device=dev), cache)


@torch.no_grad()
def propose(
    model: Model,
    cache: Cache,
    token: int,
    sampling: Sampling = GREEDY,
    rng: torch.Generator | None = None,
) -> Draft:
    """One draft block. `cache` covers all positions before `token`, which comes next."""
    dev = model.embed.weight.device
    last = torch.tensor([[cache.length - 1]], device=dev)
    context = [c.window for c in cache.draft]
    context_pos = cache.draft[0].window_start + torch.arange(context[0].shape[1], device=dev)
    hidden = model.draft_hidden(torch.tensor([[token]], device=dev), last, context, context_pos)[0, 0]
    base = model.logits(hidden.unsqueeze(0), model.mtp[-1].norm)[0]
    draft, previous, probs = Draft([], [], base), token, []
    for i in range(model.cfg.dspark_block_size):
        bias, markov = model.markov_bias(torch.tensor([previous], device=dev))
        draft.confidence.append(float(model.confidence(hidden[i : i + 1], markov).sigmoid()))
        p = distribution(base[i] + bias[0], sampling)
        previous = pick(p, rng)
        draft.tokens.append(previous)
        probs.append(p)
    draft.probs = torch.stack(probs)
    return draft


def verify(
    draft: Draft, count: int, rows: Tensor, sampling: Sampling, rng: torch.Generator
) -> tuple[list[int], list[Tensor]]:
    """Judges the first `count` draft tokens against the target's logits rows [count + 1, V].

    Row i was computed after i accepted drafts. Returns the accepted tokens with one more behind them
    (the correction of the first rejected one, or the token after all of them), and the logits of each.
    """
    kept: list[int] = []
    logits: list[Tensor] = []
    for i in range(count + 1):
        p = distribution(rows[i], sampling)
        logits.append(rows[i])
        if i == count:
            kept.append(pick(p, rng))
            break
        token, q = draft.tokens[i], draft.probs[i]
        if float(torch.rand((), generator=rng, device=rows.device)) * float(q[token]) < float(p[token]):
            kept.append(token)
            continue
        rest = (p - q).clamp(min=0)
        kept.append(pick(rest / rest.sum(), rng))
        break
    return kept, logits


@torch.no_grad()
def generate_dspark(
    model: Model,
    prompt: list[int],
    max_tokens: int,
    *,
    sampling: Sampling = GREEDY,
    stop: tuple[int, ...] = (),
    replay: int | None = None,
    threshold: float = 0.0,
) -> Result:
    """Drafts and verifies blocks. `threshold` cuts a block at the first token whose confidence is below it."""
    dev = model.embed.weight.device
    rng = torch.Generator(dev).manual_seed(sampling.seed)
    cache = Cache.new(model.cfg)
    out = model(torch.tensor([prompt], device=dev), cache, replay=replay)
    model.extend_draft_cache(cache, out.main_hidden, cache.length - out.main_hidden.shape[1])
    token = pick(distribution(out.logits[0, -1], sampling), rng)
    res = Result([token], [out.logits[0, -1]])
    while len(res.tokens) < max_tokens and token not in stop:
        draft = propose(model, cache, token, sampling, rng)
        count = next((i for i, c in enumerate(draft.confidence) if c < threshold), len(draft.tokens))
        start = cache.length
        out = model(torch.tensor([[token, *draft.tokens[:count]]], device=dev), cache)
        kept, logits = verify(draft, count, out.logits[0], sampling, rng)
        # The last of `kept` has not been through the model; `token` and the accepted drafts have.
        cache.truncate(start + len(kept), model.cfg.compress_ratios)
        model.extend_draft_cache(cache, out.main_hidden[:, : len(kept)], start)
        res.drafts.append(draft)
        res.accepted.append(len(kept) - 1)
        res.logits += logits
        for token in kept:
            res.tokens.append(token)
            if token in stop:
                break
    res.tokens = res.tokens[:max_tokens]
    res.logits = res.logits[: len(res.tokens)]
    return res


def main() -> None:
    from tokenizers import Tokenizer

    ap = argparse.ArgumentParser(description="Continue a prompt with the PyTorch reference.")
    ap.add_argument("checkpoint", help="folder with config.json, weights and tokenizer.json")
    ap.add_argument("prompt", help="rendered prompt; special tokens are recognized")
    ap.add_argument("--max-tokens", type=int, default=128)
    ap.add_argument("--temperature", type=float, default=0.0)
    ap.add_argument("--top-p", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--dspark", action="store_true", help="speculate with the draft stages")
    ap.add_argument("--threshold", type=float, default=0.0, help="cut drafts below this confidence")
    a = ap.parse_args()
    model = checkpoint.load(a.checkpoint).eval()
    tokenizer = Tokenizer.from_file(f"{a.checkpoint}/tokenizer.json")
    ids = tokenizer.encode(a.prompt).ids
    sampling, stop = Sampling(a.temperature, a.top_p, a.seed), (model.cfg.eos_token_id,)
    if a.dspark:
        res = generate_dspark(model, ids, a.max_tokens, sampling=sampling, stop=stop, threshold=a.threshold)
    else:
        res = generate(model, ids, a.max_tokens, sampling=sampling, stop=stop)
    print(tokenizer.decode(res.tokens, skip_special_tokens=False))
    if res.accepted:
        rounds = len(res.accepted)
        print(f"[{rounds} rounds, {sum(res.accepted) / rounds:.2f} draft tokens accepted per round]")


if __name__ == "__main__":
    main()
