"""Every answer vector under the strict policy, through the module: events push by push, and the accumulated body."""
import json
import re
import unittest

import fathom_recipe as recipe
from shared import REQUESTS, body_of, options_of, rows, tokenizer

RESPONSES = {
    "chat": recipe.ChatCompletionResponse,
    "responses": recipe.ResponsesResponse,
    "messages": recipe.MessagesResponse,
}
CALL_ID = re.compile(r"(call_\d\d_(?:ET_)?)[A-Za-z0-9]{20}\d{4}")


def normalised(value):
    """Clock values are 0 and random call ids are RANDOM, as in the vectors."""
    if isinstance(value, dict):
        clock = ("created", "created_at", "completed_at")
        return {k: 0 if k in clock and isinstance(v, int) else normalised(v) for k, v in value.items()}
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return CALL_ID.sub(r"\1RANDOM", value) if isinstance(value, str) else value


def generator_of(row):
    """(generator, parsing options) as a server makes them."""
    kind, options = REQUESTS[row["api"]], options_of(row)
    request = kind(body_of(row), policy="strict")
    model = request.model
    if row["api"] == "responses":
        names, echo = request.namespace_tool_map(options), request.echo()
    converted = request.convert(options)
    generator = kind.chunk_generator(converted, "ID", model)
    if row["api"] == "responses":
        generator = generator.with_namespace_tool_map(names).with_echo(echo)
    if "signature" in row:
        thinking = converted.conversation.thinking_mode
        generator = recipe.MessagesChunkGenerator("ID", model, thinking).with_signature(row["signature"])
    return generator, converted.parsing_options, model


def chunk_of(chunk):
    if "ready" in chunk:
        ready = chunk["ready"]
        usage = recipe.PromptUsage(prompt_tokens=ready.get("prompt_tokens", 0),
                                   prompt_cache_hit_tokens=ready.get("prompt_cache_hit_tokens", 0))
        return recipe.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=ready.get("system_fingerprint"))
    if "text" in chunk:
        return recipe.InferenceChunk.text(chunk["text"], chunk.get("token_count", 0))
    if "token_ids" in chunk:
        return recipe.InferenceChunk.tokens(chunk["token_ids"], chunk.get("logprobs"))
    reasons = recipe.InferenceFinishReason
    return recipe.InferenceChunk.finish(
        {"stop": reasons.Stop, "length": reasons.Length, "content_filter": reasons.ContentFilter}[chunk["finish"]])


class Answers(unittest.TestCase):
    maxDiff = 4000

    def check(self, row):
        expect = row["expect"]
        generator, parsing, model = generator_of(row)
        processor = recipe.StreamProcessor(generator, parsing,
                                           tokenizer(row["tokenizer"]) if "tokenizer" in row else None)
        kind = RESPONSES[row["api"]]
        response = kind("ID", model, 0, 0, 0)
        events, error = [], None

        def note(chunks):
            events.append([{"event": kind.sse_event_name(c), "data": json.loads(c.to_json())} for c in chunks])
            for chunk in chunks:
                response.accumulate(chunk)

        for number, chunk in enumerate(row["chunks"]):
            if processor.finished:
                break
            try:
                note(processor.push(chunk_of(chunk)))
            except RuntimeError as failure:
                error = {"chunk": number, "message": str(failure)}
                break
        if error is None:
            note(processor.finish())
            self.assertTrue(processor.finished)
        self.assertEqual(error, expect.get("error"))
        self.assertEqual(normalised(events), expect["events"])
        self.assertEqual(json.dumps(normalised(events)), json.dumps(expect["events"]), "another order of keys")
        if "final" in expect:
            self.assertEqual(normalised(json.loads(response.to_json())), expect["final"])
        self.assertEqual(kind.sse_done_data(), expect["sse_done_data"])

    def test_every_stream_of_text_gives_the_same_events_and_body(self):
        for row in rows("streams.jsonl"):
            with self.subTest(row["name"]):
                self.check(row)

    def test_every_stream_of_tokens_gives_the_same_events_and_body(self):
        for row in rows("token_streams.jsonl"):
            with self.subTest(row["name"]):
                self.check(row)


if __name__ == "__main__":
    unittest.main()
