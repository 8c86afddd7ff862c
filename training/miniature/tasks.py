"""The tasks of the corpus without tools. Each takes a random generator and returns a Chat that ends in an
assistant turn. The answer follows from the prompt alone: every prompt has one right completion, so
that a held-out exact match means something.
"""

from __future__ import annotations

import json
import random

from training.miniature.prompt import Chat, Turn
from training.miniature.words import (
    ABILITIES,
    CAPITALS,
    CITIES,
    COLORS,
    EFFORTS,
    ELEMENTS,
    JOBS,
    NAMES,
    SYSTEMS,
    THINGS,
    UNKNOWN,
    WEATHER,
    WORDS,
    ZH_CAPITALS,
    ZH_NAMES,
)


def qa(r: random.Random, q: str, a: str, think: str = "", p_think: float = 0.5, **kw) -> Chat:
    """One question and its answer; thinking, when the task gives reasons, with probability `p_think`."""
    thinking = bool(think) and r.random() < p_think
    turns = [Turn("system", r.choice(SYSTEMS))] if r.random() < 0.3 else []
    turns += [Turn("user", q), Turn("assistant", a, think)]
    return Chat(turns, thinking, effort=r.choice(EFFORTS), **kw)


def arithmetic(r: random.Random) -> Chat:
    op = r.choice("++--*")
    if op == "*":
        a, b = r.randint(0, 20), r.randint(0, 12)
        c = a * b
        why = f"{a} times {b}: {a} * {b // 2} = {a * (b // 2)} and {a} * {b - b // 2} = {a * (b - b // 2)}, the sum is {c}."
    else:
        hi = r.choice((10, 100, 100, 1000))
        a, b = r.randrange(hi), r.randrange(hi)
        if op == "-" and a < b:
            a, b = b, a
        c = a + b if op == "+" else a - b
        ta, tb = a // 10 * 10, b // 10 * 10
        part, rest = (ta + tb, a % 10 + b % 10) if op == "+" else (ta - tb, a % 10 - b % 10)
        why = f"{ta} {op} {tb} = {part}. {a % 10} {op} {b % 10} = {rest}. Together {c}."
    forms = (
        ("What is {} {} {}?", "The answer is {}."),
        ("Compute {} {} {}.", "{}"),
        ("{} {} {} = ?", "{}"),
        ("计算 {} {} {}。", "答案是{}。"),
    )
    q, ans = r.choice(forms)
    return qa(r, q.format(a, op, b), ans.format(c), why, 0.7)


def words_task(r: random.Random) -> Chat:
    ws = r.sample(WORDS, r.randint(3, 8))
    kind = r.choice(("sort", "reverse", "first", "last", "count", "longest"))
    text = ", ".join(ws)
    if kind == "sort":
        return qa(
            r,
            f"Sort these words alphabetically: {text}",
            ", ".join(sorted(ws)),
            "Order by the first letters: " + " ".join(w[0] for w in sorted(ws)) + ".",
        )
    if kind == "reverse":
        return qa(
            r, f"Reverse this list: {text}", ", ".join(ws[::-1]), f"Start from {ws[-1]} and end with {ws[0]}."
        )
    if kind == "count":
        return qa(
            r,
            f"How many words are in this list: {text}",
            str(len(ws)),
            "Count: " + " ".join(f"{i + 1} {w}" for i, w in enumerate(ws)) + ".",
        )
    if kind == "longest":
        best = max(ws, key=len)
        return qa(
            r,
            f"Which word is the longest: {text}",
            best,
            "Lengths: " + ", ".join(f"{w} {len(w)}" for w in ws) + ".",
        )
    return qa(r, f"What is the {kind} word of this list: {text}", ws[0] if kind == "first" else ws[-1])


def copy_task(r: random.Random) -> Chat:
    n = r.randint(4, 30)
    body = " ".join(r.choice(WORDS) if r.random() < 0.8 else str(r.randrange(1000)) for _ in range(n))
    return qa(r, r.choice(("Repeat exactly: {}", "Copy this text: {}", "Echo: {}")).format(body), body)


def filler(r: random.Random) -> str:
    k = r.randrange(5)
    if k == 0:
        return f"The {r.choice(COLORS)} {r.choice(THINGS)} is near the {r.choice(WORDS)}."
    if k == 1:
        return f"{r.choice(NAMES)} went to {r.choice(CITIES)} in the {r.choice(('morning', 'evening', 'summer', 'winter'))}."
    if k == 2:
        return f"There is a {r.choice(WORDS)} behind the {r.choice(WORDS)}."
    if k == 3:
        return f"{r.choice(NAMES)} works as a {r.choice(JOBS)} and likes {r.choice(COLORS)}."
    return f"It was {r.choice(WEATHER)} in {r.choice(CITIES)}."


def needle(r: random.Random) -> Chat:
    count = r.choice((1, 1, 2, 3))
    keys = r.sample(WORDS, count)
    vals = [str(r.randrange(1000, 10000)) for _ in keys]
    lines = [filler(r) for _ in range(r.randint(15, 75))]
    for k, v in zip(keys, vals, strict=True):
        lines.insert(r.randrange(len(lines) + 1), f"The secret number of {k} is {v}.")
    i = r.randrange(count)
    q = " ".join(lines) + f"\n\nWhat is the secret number of {keys[i]}?"
    return qa(
        r, q, f"The secret number of {keys[i]} is {vals[i]}.", f"Look for {keys[i]}: it is {vals[i]}.", 0.3
    )


def json_task(r: random.Random) -> Chat:
    name, age, city, job = r.choice(NAMES), r.randint(18, 80), r.choice(CITIES), r.choice(JOBS)
    s = r.choice((
        f"{name} is {age} years old, lives in {city} and works as a {job}.",
        f"The {job} {name}, aged {age}, comes from {city}.",
        f"In {city} I met {name}, a {job} of {age} years.",
    ))  # fmt: skip
    full = {"name": name, "age": age, "city": city, "job": job}
    keys = r.sample(list(full), r.randint(2, 4))
    ans = json.dumps({k: full[k] for k in keys})
    return qa(
        r,
        f"Extract {', '.join(keys)} as JSON: {s}",
        ans,
        f"name {name}, age {age}, city {city}, job {job}.",
        0.4,
        json_object=r.random() < 0.4,
    )


def facts(r: random.Random) -> Chat:
    k = r.randrange(6)
    if k == 0:
        c, v = r.choice(list(ZH_CAPITALS.items()))
        return qa(
            r,
            r.choice((f"{c}的首都是哪里？", f"请问{c}的首都是什么？")),
            f"{c}的首都是{v}。",
            f"{c}的首都是{v}。",
            0.3,
        )
    if k in (1, 2):
        e, s = r.choice(list(ELEMENTS.items()))
        if r.random() < 0.3:
            return qa(r, f"Which element has the symbol {s}?", f"{s} is the symbol of {e}.")
        return qa(
            r,
            r.choice((f"What is the chemical symbol of {e}?", f"Symbol for {e}?")),
            f"The chemical symbol of {e} is {s}.",
        )
    c, v = r.choice(list(CAPITALS.items()))
    if r.random() < 0.25:
        return qa(
            r, f"Which country has the capital {v}?", f"{v} is the capital of {c}.", f"{v} belongs to {c}.", 0.3
        )
    return qa(
        r,
        r.choice((f"What is the capital of {c}?", f"Capital of {c}?", f"Tell me the capital city of {c}.")),
        f"The capital of {c} is {v}.",
        f"The country is {c}. Its capital is {v}.",
        0.4,
    )


def code(r: random.Random) -> Chat:
    a, b, n = r.choice("abxyn"), r.randint(2, 12), r.randint(2, 12)
    v = r.choice(("nums", "items", "values", "data", "words"))
    pairs = (
        (f"sum the list {v}", f"sum({v})"),
        (f"square every element of {v}", f"[x ** 2 for x in {v}]"),
        (f"keep the elements of {v} greater than {n}", f"[x for x in {v} if x > {n}]"),
        (f"reverse the list {v}", f"{v}[::-1]"),
        (f"get the first {n} elements of {v}", f"{v}[:{n}]"),
        (f"count how often {b} occurs in {v}", f"{v}.count({b})"),
        (f"join {v} with commas", f'",".join({v})'),
        (f"sort {v} in descending order", f"sorted({v}, reverse=True)"),
        (f"multiply {a} by {b} and add {n}", f"{a} * {b} + {n}"),
        (f"make a dict from {v} to their lengths", f"{{x: len(x) for x in {v}}}"),
        (f"check whether {a} is even", f"{a} % 2 == 0"),
        (f"find the largest element of {v}", f"max({v})"),
        (f"define a function that adds {n} to {a}", f"lambda {a}: {a} + {n}"),
    )
    q, ans = r.choice(pairs)
    return qa(r, f"Python one-liner to {q}:", f"```python\n{ans}\n```")


def greet(r: random.Random) -> Chat:
    n = r.choice(NAMES)
    if r.random() < 0.25:
        q = r.choice(UNKNOWN)
        return qa(
            r, q, "I am only a small test model and do not know that.", "I was not trained for this.", 0.3
        )
    if r.random() < 0.1:
        return qa(
            r,
            r.choice(("What can you do?", "Help", "What are you able to do?")),
            ABILITIES,
            "List the abilities.",
            0.3,
        )
    q, a = r.choice((
        ("Hello!", "Hello! How can I help you?"), ("Hi", "Hi! What can I do for you?"),
        ("Good morning", "Good morning! How can I help you?"), ("Who are you?", "I am Fathom, a small test model."),
        (f"My name is {n}.", f"Nice to meet you, {n}!"), ("Thanks!", "You are welcome!"), ("Bye", "Goodbye!"),
        ("你好", "你好！有什么可以帮你？"), ("谢谢", "不客气！"), ("你是谁？", "我是一个小型测试模型。"), ("再见", "再见！"),
        (f"我叫{(z := r.choice(ZH_NAMES))}。", f"你好，{z}！很高兴认识你。"),
    ))  # fmt: skip
    return qa(r, q, a, "A short friendly reply is enough.", 0.3)


def multi_turn(r: random.Random) -> Chat:
    fns = [r.choice((arithmetic, facts, greet, words_task, code)) for _ in range(r.randint(2, 4))]
    chats = [f(r) for f in fns]
    thinking = r.random() < 0.4
    turns = [t for c in chats for t in c.turns if t.role != "system"]
    if r.random() < 0.3:
        turns.insert(0, Turn("system", r.choice(SYSTEMS)))
    return Chat(turns, thinking, effort=r.choice(EFFORTS))
