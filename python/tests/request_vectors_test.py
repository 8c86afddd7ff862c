"""Every request vector under the strict policy, through the module: what deepseek-recipe 0.2.0 makes of it."""
import json
import unittest

import fathom_recipe as recipe
from shared import REQUESTS, body_of, convert, encoding_of, options_of, rows, tokenizer


def describe_source(source):
    out = {"kind": source.kind, "detail": source.detail, "path": source.path}
    if source.kind != "bytes":
        out[source.kind] = source.data_url if source.kind == "data_url" else source.url
    return out


def describe_tool(tool):
    return {name: getattr(tool, name) for name in ("name", "description", "parameters", "strict", "defer_loading")}


def describe_message(message):
    out = {"role": message.role, "content": message.content}
    if message.role == "assistant":
        calls = message.tool_calls
        out["reasoning_content"] = message.reasoning_content
        out["tool_calls"] = calls and [{n: getattr(c, n) for n in ("id", "name", "arguments")} for c in calls]
        out["prefix"] = message.prefix
    if message.role == "tool":
        out["tool_call_id"] = message.tool_call_id
    if message.role == "system" and message.tools is not None:
        out["tools"] = [describe_tool(tool) for tool in message.tools]
    if message.image_sources:
        out["image_sources"] = [describe_source(source) for source in message.image_sources]
    return out


def describe_conversation(conversation):
    names = ("thinking_mode", "tool_choice", "reasoning_effort", "response_format", "response_schema", "response_regex")
    return {
        "messages": [describe_message(message) for message in conversation.messages],
        "tools": [describe_tool(tool) for tool in conversation.tools],
        **{name: getattr(conversation, name) for name in names},
    }


def describe_inference(inference):
    names = ("max_tokens", "temperature", "top_p", "logprobs", "top_logprobs", "seed")
    constraint = inference.output_constraint
    out = {name: getattr(inference, name) for name in names}
    out["output_constraint"] = constraint and {"kind": constraint.kind, "schema": constraint.schema}
    return out


def describe_parsing(parsing):
    names = ("parse_tool_calls", "starts_in_tool_calls", "parse_json_output", "stop_sequences")
    stage = parsing.thinking_initial_stage
    return {**{name: getattr(parsing, name) for name in names}, "thinking_initial_stage": stage and stage.name}


def resolved(converted, asked):
    out = []
    for prompt, limit, *_ in asked:
        try:
            out.append([prompt, limit, converted.resolve_max_tokens(prompt, limit)])
        except recipe.ConversionError as error:
            out.append([prompt, limit, {"status": error.status_code, "body": json.loads(error.body)}])
    return out


def single(value):
    """Vectors have the shortest decimal of the 32-bit value."""
    return None if value is None else float(f"{value:.6g}")


class Requests(unittest.TestCase):
    def test_every_request_is_converted_and_rendered(self):
        for row in rows("requests.jsonl"):
            with self.subTest(row["name"]):
                expect = row["expect"]
                options = options_of(row)
                request = REQUESTS[row["api"]](body_of(row), policy="strict")
                if "namespace_tool_map" in expect:
                    names = {name: list(parts) for name, parts in request.namespace_tool_map(options).items()}
                    self.assertEqual(names, expect["namespace_tool_map"])
                if "echo" in expect:
                    echo = request.echo()
                    found = {name: getattr(echo, name) for name in expect["echo"]}
                    found["temperature"], found["top_p"] = single(found["temperature"]), single(found["top_p"])
                    self.assertEqual(found, expect["echo"])
                converted = request.convert(options)
                rendered = encoding_of(converted, options).render_conversation(converted.conversation)
                version = {"DeepseekV4Pro": "v4", "DeepseekV41Flash": "v4.1"}[converted.model_version.name]
                self.assertEqual(version, expect["model_version"])
                self.assertEqual(converted.stream, expect["stream"])
                self.assertEqual(describe_conversation(converted.conversation), expect["conversation"])
                self.assertEqual(rendered.prompt, expect["prompt"])
                self.assertEqual([list(pair) for pair in rendered.special_ranges], expect["special_ranges"])
                self.assertEqual([describe_source(s) for s in rendered.image_sources], expect["image_sources"])
                inference = describe_inference(converted.inference_options)
                inference["temperature"], inference["top_p"] = single(inference["temperature"]), single(inference["top_p"])
                self.assertEqual(inference, expect["inference"])
                self.assertEqual(describe_parsing(converted.parsing_options), expect["parsing"])
                asked = expect.get("resolve_max_tokens", [])
                self.assertEqual(resolved(converted, asked), asked)

    def test_every_invalid_request_is_refused_at_its_stage(self):
        for row in rows("invalid.jsonl"):
            with self.subTest(row["name"]):
                expect = row["expect"]
                kind = ValueError if expect["stage"] == "parse" else recipe.ConversionError
                with self.assertRaises(kind) as caught:
                    convert(row)
                self.assertIs(type(caught.exception), kind)
                self.assertEqual(caught.exception.status_code, 400)
                if expect["stage"] == "convert":
                    self.assertEqual(caught.exception.body, expect["body_text"])
                    self.assertEqual(str(caught.exception), expect["body"]["error"]["message"])

    def test_every_prompt_is_encoded_to_the_same_ids(self):
        for row in rows("prompt_tokens.jsonl"):
            with self.subTest(row["name"]):
                expect = row["expect"]
                converted, options = convert(row)
                encoding = encoding_of(converted, options).with_tokenizer(tokenizer(row["tokenizer"]))
                if "error" in expect:
                    with self.assertRaises(RuntimeError) as caught:
                        encoding.encode(converted.conversation)
                    self.assertIn(expect["error"], str(caught.exception))
                    continue
                self.assertEqual(encoding.render_conversation(converted.conversation).prompt, expect["prompt"])
                self.assertEqual(encoding.encode(converted.conversation), expect["token_ids"])


if __name__ == "__main__":
    unittest.main()
