"""docs/guides/codec.md: its C++ is that of examples/codec/answer.cpp, which answers requests of all three APIs; its Python runs.

FATHOM_EXAMPLE names the built example_codec; FATHOM_PYTHON_PACKAGE the folder to import fathom_recipe from (-DFATHOM_PYTHON=ON).
"""
import json
import os
import re
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guides/codec.md"
SOURCE = ROOT / "examples/codec/answer.cpp"
EXAMPLE = os.environ.get("FATHOM_EXAMPLE")
PACKAGE = os.environ.get("FATHOM_PYTHON_PACKAGE")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Cpp(unittest.TestCase):
    def test_every_block_stands_in_the_program(self):
        source, found = SOURCE.read_text(encoding="utf-8"), blocks("cpp")
        self.assertGreaterEqual(len(found), 4)
        for block in found:
            self.assertIn(block, source)


@unittest.skipUnless(EXAMPLE, "example_codec was not built")
class Program(unittest.TestCase):
    def answer(self, api, how="answers", code=0, **body):
        turns = "input" if api == "responses" else "messages"
        request = {"model": "DeepSeek-V4.1-Flash", turns: [{"role": "user", "content": "2+2?"}], "max_tokens": 500, **body}
        done = subprocess.run([EXAMPLE, "models/mini/tokenizer.json", api, how], input=json.dumps(request), cwd=ROOT,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def test_complete_answers(self):
        chat = json.loads(self.answer("chat"))["choices"][0]
        self.assertEqual((chat["message"]["reasoning_content"], chat["message"]["content"]), ("Two and two.", "The sum is 4."))
        kinds = [item["type"] for item in json.loads(self.answer("responses"))["output"]]
        self.assertEqual(kinds, ["reasoning", "message"])
        blocks = json.loads(self.answer("messages"))["content"]
        self.assertEqual([block["type"] for block in blocks], ["thinking", "text"])

    def test_a_call(self):
        function = {"name": "add", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
        choice = json.loads(self.answer("chat", tools=[{"type": "function", "function": function}]))["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        call = choice["message"]["tool_calls"][0]["function"]
        self.assertEqual((call["name"], json.loads(call["arguments"])), ("add", {"n": 4}))

    def test_streams_end_as_their_api_says(self):
        self.assertTrue(self.answer("chat", stream=True).endswith("data: [DONE]\n\n\n"))
        self.assertIn("\nevent: response.completed\n", self.answer("responses", stream=True))
        self.assertIn("\nevent: message_stop\n", self.answer("messages", stream=True))

    def test_signs_of_life(self):
        self.assertIn("\n: keep-alive\n", self.answer("chat", "waits", stream=True))
        self.assertEqual(self.answer("responses", "waits", stream=True).count("event: response.in_progress\n"), 2)
        self.assertIn("event: ping\n", self.answer("messages", "waits", stream=True))

    def test_failures_have_no_normal_end(self):
        chat = self.answer("chat", "fails", code=1, stream=True)
        self.assertIn('data: {"error":{"message":"the device was lost"', chat)
        self.assertNotIn("[DONE]", chat)
        self.assertIn("event: response.failed\n", self.answer("responses", "fails", code=1, stream=True))
        self.assertIn("event: error\n", self.answer("messages", "fails", code=1, stream=True))
        self.assertIn("the device was lost", json.loads(self.answer("chat", "fails", code=1))["error"]["message"])

    def test_length_and_refusals(self):
        self.assertEqual(json.loads(self.answer("chat", max_tokens=9))["choices"][0]["finish_reason"], "length")
        refused = json.loads(self.answer("chat", code=1, model="nobody"))["error"]
        self.assertEqual((refused["param"], refused["type"]), ("model", "invalid_request_error"))

    def test_an_image_takes_as_many_tokens_as_its_layout(self):
        def prompt_tokens(*parts):
            content = [{"type": "text", "text": "what is it?"}, *parts]
            return json.loads(self.answer("chat", messages=[{"role": "user", "content": content}]))["usage"]["prompt_tokens"]

        image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        # 640 x 480: 46 x 34 patches of 14 pixels in groups of 3 x 3, a line break a row, start and end.
        self.assertGreater(prompt_tokens(image) - prompt_tokens(), 100)


@unittest.skipUnless(PACKAGE, "the Python module is not built (-DFATHOM_PYTHON=ON)")
class Python(unittest.TestCase):
    def test_the_blocks_are_one_program_that_runs(self):
        program = "\n".join(textwrap.dedent(block) for block in blocks("python"))
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": PACKAGE})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"content":"The sum is 4."', done.stdout)
        self.assertIn("400 ", done.stdout)


if __name__ == "__main__":
    unittest.main()
