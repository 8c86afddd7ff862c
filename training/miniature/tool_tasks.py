"""The tool-calling task: schemas, calls with their results, and the conversation around them."""

from __future__ import annotations

import json
import random

from training.miniature.prompt import Chat, Turn
from training.miniature.words import CITIES, EFFORTS, NAMES, SYSTEMS, WEATHER, WORDS


def tool(name: str, desc: str, required: list[str] | None = None, **props: str) -> dict:
    p = {k: {"type": v} for k, v in props.items()}
    return {
        "name": name,
        "description": desc,
        "parameters": {"type": "object", "properties": p, "required": required or list(props)},
    }


TOOLS = {
    "get_weather": tool("get_weather", "Get the weather of a city", ["city"], city="string", days="integer"),
    "calculator": tool("calculator", "Evaluate an arithmetic expression", expression="string"),
    "search": tool("search", "Search the web", ["query"], query="string", limit="integer"),
    "get_time": tool("get_time", "Get the local time of a city", city="string"),
    "send_email": tool("send_email", "Send an email", to="string", subject="string"),
    "set_alarm": tool("set_alarm", "Set an alarm", hour="integer", minute="integer"),
    "play_music": tool("play_music", "Play a song", ["title"], title="string", loop="boolean"),
}


def call_and_result(r: random.Random, name: str) -> tuple[str, dict, str, str, str]:
    """User text, arguments, tool result, reasoning before the call, final answer."""
    city = r.choice(CITIES)
    if name == "get_weather":
        days, w, t = r.randint(1, 7), r.choice(WEATHER), r.randint(-10, 40)
        args = {"city": city} if r.random() < 0.6 else {"city": city, "days": days}
        q = (
            f"What is the weather in {city}?"
            if len(args) == 1
            else f"What is the weather in {city} for {days} days?"
        )
        return (
            q,
            args,
            json.dumps({"city": city, "weather": w, "temp": t}),
            f"I need the weather of {city}.",
            f"It is {w} in {city}, {t} degrees.",
        )
    if name == "calculator":
        a, b, op = r.randint(100, 9999), r.randint(10, 999), r.choice("+-*")
        res = {"+": a + b, "-": a - b, "*": a * b}[op]
        return (
            f"Use the calculator for {a} {op} {b}.",
            {"expression": f"{a} {op} {b}"},
            str(res),
            f"Call the calculator with {a} {op} {b}.",
            f"{a} {op} {b} = {res}.",
        )
    if name == "search":
        x = " ".join(r.sample(WORDS, 2))
        n, hits = r.randint(1, 10), r.randint(1, 99)
        args = {"query": x} if r.random() < 0.5 else {"query": x, "limit": n}
        q = f"Search for {x}." if len(args) == 1 else f"Search for {x}, at most {n} results."
        return (
            q,
            args,
            json.dumps({"hits": hits, "top": f"About {x}"}),
            f"I should search {x}.",
            f"I found {hits} hits. The top one is: About {x}.",
        )
    if name == "get_time":
        t = f"{r.randrange(24):02d}:{r.randrange(60):02d}"
        return (
            f"What time is it in {city}?",
            {"city": city},
            json.dumps({"city": city, "time": t}),
            f"I need the time of {city}.",
            f"It is {t} in {city}.",
        )
    if name == "send_email":
        who, sub = r.choice(NAMES), r.choice(WORDS)
        to = f"{who.lower()}@example.com"
        return (
            f"Send an email to {to} about {sub}.",
            {"to": to, "subject": sub},
            '{"ok": true}',
            f"Send it to {to}.",
            f"I sent an email about {sub} to {to}.",
        )
    if name == "set_alarm":
        h, m = r.randrange(24), r.randrange(60)
        return (
            f"Set an alarm for {h:02d}:{m:02d}.",
            {"hour": h, "minute": m},
            '{"ok": true}',
            f"Hour {h}, minute {m}.",
            f"The alarm is set for {h:02d}:{m:02d}.",
        )
    x, loop = " ".join(r.sample(WORDS, 2)), r.random() < 0.5
    q = f"Play {x}" + (" in a loop." if loop else ".")
    return (
        q,
        {"title": x, "loop": True} if loop else {"title": x},
        '{"ok": true}',
        f"Play {x}.",
        f"Now playing {x}.",
    )


def tools_task(r: random.Random) -> Chat:
    names = r.sample(list(TOOLS), r.choice((1, 2, 2, 3)))
    use = [r.choice(names)] if r.random() < 0.85 or len(names) < 2 else names[:2]
    turns = [Turn("system", r.choice(SYSTEMS))] if r.random() < 0.3 else []
    parts = [call_and_result(r, n) for n in use]
    thinking = r.random() < 0.6
    turns.append(Turn("user", " ".join(p[0] for p in parts)))
    turns.append(
        Turn(
            "assistant",
            "",
            " ".join(p[3] for p in parts) if thinking else "",
            [(n, p[1]) for n, p in zip(use, parts, strict=True)],
        )
    )
    if r.random() < 0.75:
        turns += [Turn("tool", p[2]) for p in parts]
        turns.append(Turn("assistant", " ".join(p[4] for p in parts), "The tool answered." if thinking else ""))
    return Chat(turns, thinking, [TOOLS[n] for n in names], effort=r.choice(EFFORTS))
