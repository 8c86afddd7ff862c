"""Times deepseek-recipe as fathom_side.cpp times fathom, and checks that both give the same.

Called by bench/peers/recipe/run with the interpreter of its virtual environment; inputs are what `recipe_peer inputs` prints:

  wheel_side.py check TOKENIZER.json < inputs             says how much is the same, or ends with what differs
  wheel_side.py measure TOKENIZER.json SECONDS < inputs   one JSON object a line and API; seconds of processor time

A user of the wheel pays for crossings from Python too. `crossing` is what one costs: a call, in the same kind of loop, of a native
function of the wheel that takes nothing and does nothing. A chunk takes two (make it, push it) and one for each event (its text).
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import deepseek_recipe as recipe

PHASES = ("reasoning", "content", "calls")
REQUESTS = {
    "chat": recipe.ChatCompletionRequest,
    "responses": recipe.ResponsesRequest,
    "messages": recipe.MessagesRequest,
}
ID = "chatcmpl-0123456789abcdef"
RENAMED = {128799: "<｜System｜>", 129264: "<｜deepseek_image｜>", 129279: "<｜place▁holder▁no▁1279｜>"}
# By the clock, or random: times, and ids of calls.
OWN = re.compile(r'(?<="created":)\d+|(?<="created_at":)\d+|(?<="completed_at":)\d+|(?<=call_\d\d_)[0-9A-Za-z]+')


def v41_tokenizer(path: str) -> recipe.Tokenizer:
    """The published V4 tokenizer with the three spellings that V4.1 prompts need."""
    with open(path, encoding="utf-8") as file:
        tree = json.load(file)
    for token in tree["added_tokens"]:
        token["content"] = RENAMED.get(token["id"], token["content"])
    return recipe.Tokenizer.from_str(json.dumps(tree, ensure_ascii=False, separators=(",", ":")))


def convert(api: str, body: bytes) -> tuple[recipe.ConversationRequest, Any]:
    """What answering needs: for Responses also names and echo, which are read before the request is consumed."""
    options = recipe.ConversionOptions()
    request = REQUESTS[api](body)
    extras = (request.namespace_tool_map(options), request.echo()) if api == "responses" else None
    return request.convert(options), extras


def processor(api: str, request: recipe.ConversationRequest, extras: Any) -> recipe.StreamProcessor:
    generator = REQUESTS[api].chunk_generator(request, ID, "DeepSeek-V4.1-Flash")
    if extras:
        generator = generator.with_namespace_tool_map(extras[0]).with_echo(extras[1])
    return recipe.StreamProcessor(generator, request.parsing_options)


READY = recipe.InferenceChunk.ready(prompt_usage=recipe.PromptUsage(prompt_tokens=1))


def check(inputs: dict[str, Any], encoding: recipe.DeepseekV41Encoding) -> None:
    same = {"prompts": 0, "ids": 0, "events": 0}
    for api, of_api in inputs.items():
        for i, body in enumerate(of_api["requests"]):
            request, extras = convert(api, body.encode())
            prompt = encoding.render_conversation(request.conversation).prompt
            stream = processor(api, request, extras)
            events = [e.to_json() for e in stream.push(READY)]
            for phase in of_api["answers"][i]:
                for piece in phase:
                    events += [e.to_json() for e in stream.push(recipe.InferenceChunk.text(piece, 1))]
            events += [e.to_json() for e in stream.push(recipe.InferenceChunk.finish(recipe.InferenceFinishReason.Stop))]
            events += [e.to_json() for e in stream.finish()]
            found = {"prompts": prompt, "ids": encoding.encode(request.conversation), "events": [OWN.sub("0", e) for e in events]}
            ours = {"prompts": of_api["prompts"][i], "ids": of_api["ids"][i], "events": [OWN.sub("0", e) for e in of_api["events"][i]]}
            for what, value in found.items():
                if value != ours[what]:
                    at = next((k for k, (a, b) in enumerate(zip(value, ours[what])) if a != b), min(len(value), len(ours[what])))
                    around = slice(max(0, at - 20), at + 20) if what == "prompts" else slice(at, at + 1)
                    sys.exit(f"wheel_side: {what} of {api} request {i} differ at {at}: wheel {value[around]}, fathom {ours[what][around]}")
                same[what] += len(value) if what == "events" else 1
    print(", ".join(f"{count} {what}" for what, count in same.items()))


def time_a_call(count: int, seconds: float, each: Callable[[int], object]) -> float:
    """Processor seconds of one call of each(0) ... each(count - 1), again and again."""
    for i in range(count):
        each(i)
    calls, begin, spent = 0, time.process_time(), 0.0
    while spent < seconds:
        for i in range(count):
            each(i)
        calls += count
        spent = time.process_time() - begin
    return spent / calls


def crossing() -> float:
    nothing, rounds = recipe.ResponsesResponse.sse_done_data, 100_000
    begin = time.process_time()
    for _ in range(rounds):
        nothing()
    return (time.process_time() - begin) / rounds


def measure_answers(api: str, of_api: dict[str, Any], requests: list[Any], seconds: float) -> dict[str, float]:
    spent, chunks, events = [0.0] * 3, [0] * 3, [0] * 3
    make = recipe.InferenceChunk.text
    for warm in (True, False):
        begin = time.process_time()
        while True:
            for answer, (request, extras) in zip(of_api["answers"], requests, strict=True):
                stream = processor(api, request, extras)
                for event in stream.push(READY):
                    event.to_json()
                push = stream.push
                for phase, pieces in enumerate(answer):
                    count, before = 0, time.process_time()
                    for piece in pieces:
                        for event in push(make(piece, 1)):
                            event.to_json()
                            count += 1
                    spent[phase] += time.process_time() - before
                    chunks[phase] += len(pieces)
                    events[phase] += count
            if warm:
                spent, chunks, events = [0.0] * 3, [0] * 3, [0] * 3
                break
            if time.process_time() - begin > seconds:
                break
    out = {}
    for phase, name in enumerate(PHASES):
        out[name] = spent[phase] / chunks[phase]
        out[f"{name}_crossings"] = 2 + events[phase] / chunks[phase]
    return out


def measure(inputs: dict[str, Any], encoding: recipe.DeepseekV41Encoding, seconds: float) -> None:
    for api, of_api in inputs.items():
        bodies = [body.encode() for body in of_api["requests"]]
        count = len(bodies)
        requests = [convert(api, body) for body in bodies]
        conversations = [request.conversation for request, _ in requests]
        rendering = time_a_call(count, seconds, lambda i: encoding.render_conversation(conversations[i]))
        row = {
            "api": api,
            "convert": time_a_call(count, seconds, lambda i: convert(api, bodies[i])),
            "render": rendering,
            # encode() renders first; what is left is the way from text to ids.
            "encode": time_a_call(count, seconds, lambda i: encoding.encode(conversations[i])) - rendering,
            **measure_answers(api, of_api, requests, seconds),
            "crossing": crossing(),
        }
        print(json.dumps(row), flush=True)


def main() -> None:
    what, path = sys.argv[1:3]
    encoding = recipe.DeepseekV41Encoding().with_tokenizer(v41_tokenizer(path))
    inputs = json.load(sys.stdin)
    if what == "check":
        check(inputs, encoding)
    else:
        measure(inputs, encoding, float(sys.argv[3]))


if __name__ == "__main__":
    main()
