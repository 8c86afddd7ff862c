"""generate under constraints: the answer is in the language, however it is drawn (spec/engine.md 10, R-38)."""
import json
import unittest

from program import ProgramTest, run

SCHEMA = {
    "type": "object",
    "properties": {
        "sum": {"type": "integer", "minimum": -9, "maximum": 999},
        "parity": {"enum": ["even", "odd"]},
        "digits": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 1, "maxItems": 4},
        "note": {"type": "string", "maxLength": 12},
    },
    "required": ["sum", "parity", "digits"],
    "additionalProperties": False,
}
EXPRESSION = r"(sum|total) = [0-9]{1,3}(\.[05])?"
MODEL = "DeepSeek-V4.1-Flash"
WAYS = (["--greedy", "--drafts", "0"], ["--greedy", "--drafts", "5"], ["--seed", "3", "--drafts", "0"],
        ["--seed", "3", "--drafts", "5"], ["--seed", "4", "--sampling", "transparent", "--temperature", "1.5"])


class Constraints(ProgramTest):
    def fits(self, text):
        value = json.loads(text)
        self.assertLessEqual(set(value), set(SCHEMA["properties"]))
        self.assertLessEqual(set(SCHEMA["required"]), set(value))
        self.assertIsInstance(value["sum"], int)
        self.assertIn(value["sum"], range(-9, 1000))
        self.assertIn(value["parity"], ("even", "odd"))
        self.assertIn(len(value["digits"]), range(1, 5))
        for digit in value["digits"]:
            self.assertIn(digit, range(10))
        self.assertLessEqual(len(value.get("note", "")), 12)

    def test_an_answer_fits_its_schema(self):
        path = self.folder() / "schema.json"
        path.write_text(json.dumps(SCHEMA))
        greedy = set()
        for effort in ("none", "75"):
            for way in WAYS:
                with self.subTest(" ".join([effort, *way])):
                    answer = self.succeeds("generate", "--chat", "What is 37 + 45?", "--effort", effort, "--schema", path,
                                           "--json", *way).json()
                    self.assertEqual(answer["finish_reason"], "stop")
                    self.fits(answer["text"])
                    self.assertEqual(bool(answer["reasoning"]), effort != "none")
                    if "--greedy" in way:
                        greedy.add((effort, answer["reasoning"], answer["text"]))
        self.assertEqual(len(greedy), 2, "drafts do not change greedy text")

    def test_an_answer_matches_its_expression(self):
        for effort in ("none", "75"):
            for way in WAYS:
                with self.subTest(" ".join([effort, *way])):
                    answer = self.succeeds("generate", "--chat", "What is 37 + 45?", "--effort", effort, "--regex",
                                           EXPRESSION, "--json", *way).json()
                    self.assertEqual(answer["finish_reason"], "stop")
                    self.assertRegex(answer["text"], f"^(?:{EXPRESSION})$")

    def test_the_streamed_text_is_the_answer(self):
        ran = self.succeeds("generate", "--chat", "What is 37 + 45?", "--effort", "75", "--regex", EXPRESSION, "--greedy")
        self.assertRegex(ran.out, f"^(?:{EXPRESSION})\n$")

    def test_bodies_are_answered_in_their_form(self):
        words = ["--greedy", "--json", "--max-tokens", "200"]
        path = self.folder() / "body.json"

        def ask(**members):
            path.write_text(json.dumps({"model": MODEL, "messages": [
                {"role": "user", "content": "Set an alarm for 04:37, as json."}], **members}))
            return self.succeeds("generate", "--request", path, *words).json()

        schema = {"type": "json_schema", "json_schema": {"name": "t", "schema": SCHEMA}}
        self.fits(ask(response_format=schema, reasoning_effort="none")["text"])
        self.assertRegex(ask(response_format={"type": "regex", "regex": EXPRESSION})["text"], f"^(?:{EXPRESSION})$")
        # JSON mode bounds nothing, so an answer may be cut off; it begins as JSON.
        self.assertRegex(ask(response_format={"type": "json_object"}, reasoning_effort="none")["text"], r"^\s*[\[{]")

        alarm = {"type": "function", "function": {"name": "wake", "strict": True, "parameters": {
            "type": "object", "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23},
                                             "day": {"type": "string", "enum": ["today", "tomorrow"]}},
            "required": ["hour", "day"], "additionalProperties": False}}}
        answer = ask(tools=[alarm], tool_choice="required", reasoning_effort="none")
        self.assertEqual(answer["finish_reason"], "tool_calls")
        for call in answer["tool_calls"]:
            self.assertEqual(call["name"], "wake")
            arguments = json.loads(call["arguments"])
            self.assertEqual(set(arguments), {"hour", "day"})
            self.assertIn(arguments["hour"], range(24))
            self.assertIn(arguments["day"], ("today", "tomorrow"))
        # Called or not, what is called fits.
        for call in ask(tools=[alarm])["tool_calls"]:
            self.assertEqual(set(json.loads(call["arguments"])), {"hour", "day"})

    def test_a_bad_line_of_a_batch_fails_alone(self):
        folder = self.folder()
        message = {"role": "user", "content": "What is 37 + 45? json"}

        def line(name, schema):
            return {"id": name, "url": "/v1/chat/completions", "body": {
                "model": MODEL, "messages": [message], "temperature": 0, "max_tokens": 300,
                "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}}}

        lines = [line("good", SCHEMA), line("bad", {"type": "object", "patternProperties": {"^x": {}}}),
                 line("large", {"type": "array", "items": {"type": "integer"}, "minItems": 18446744073709551615}),
                 line("again", SCHEMA)]
        (folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        ran = run("generate", "--input", folder / "in.jsonl", "--output", folder / "out.jsonl")
        self.assertEqual(ran.code, 1)
        self.assertIn("lines 2, 3", ran.err)
        answers = {one["id"]: one for one in map(json.loads, (folder / "out.jsonl").read_text().splitlines())}
        self.assertIn("patternProperties", answers["bad"]["error"]["message"])
        self.assertEqual(answers["bad"]["error"]["param"], "response_format.json_schema.schema.patternProperties")
        for name in ("good", "again"):
            self.fits(answers[name]["response"]["choices"][0]["message"]["content"])


if __name__ == "__main__":
    unittest.main()
