"""generate --input: nothing lost and nothing doubled, whatever happens (design/cli.md 2)."""
import json
import os
import pty
import random
import signal
import subprocess
import time
import unittest

from program import PROGRAM, ROOT, ProgramTest, environment, run

PROMPT = [0, 6, 1491, 512, 2400, 53, 7, 9]  # "Symbol for iron?", thinking off


class Batch(ProgramTest):
    def setUp(self):
        self.at = self.folder()
        self.input, self.output = self.at / "in.jsonl", self.at / "out.jsonl"

    def write(self, *lines):
        self.input.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))

    def answers(self):
        text = self.output.read_text()
        self.assertTrue(text == "" or text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def words(self, *more):
        return ["generate", "--input", self.input, "--output", self.output, "--greedy", *more]

    def test_lines_of_every_form_are_answered(self):
        self.write({"id": "ids", "token_ids": PROMPT}, {"id": 2, "prompt_ids": PROMPT, "prompt": "not this"},
                   {"prompt": "The capital of", "max_tokens": 3}, "",
                   {"id": "sampled", "token_ids": PROMPT, "temperature": 1, "seed": 3, "stop": ["."], "max_tokens": 9})
        self.assertEqual(self.succeeds(*self.words()).err, "")
        found = {a["id"]: a["response"] for a in self.answers()}
        self.assertEqual(set(found), {"ids", 2, 3, "sampled"})  # a line without an id gets its number
        self.assertEqual(found["ids"]["text"], "The chemical symbol of iron is Fe.")
        self.assertEqual(found[2]["token_ids"], found["ids"]["token_ids"])
        self.assertEqual(len(found[3]["token_ids"]), 3)
        self.assertNotIn(".", found["sampled"]["text"])

    def test_bad_lines_are_reported_with_their_number_while_the_others_go_on(self):
        self.write({"id": "a", "token_ids": PROMPT}, "{broken", "[]", {"id": "a", "token_ids": PROMPT}, {"id": "none"},
                   {"id": "far", "token_ids": [999999]}, {"id": "hot", "token_ids": PROMPT, "temperature": "hot"},
                   {"id": "url", "url": "/v1/chat/completion", "body": {}}, {"id": "long", "token_ids": [5] * 9000},
                   {"id": ["x"], "token_ids": PROMPT}, {"id": "z", "token_ids": PROMPT})
        ran = run(*self.words())
        self.assertEqual(ran.code, 1)
        self.assertIn("9 of 11 lines failed: lines 2, 3, 4, 5, 6, 7, 8, 9, 10", ran.err)
        answers = self.answers()
        self.assertEqual(len(answers), 11)
        self.assertEqual({a["id"] for a in answers if "response" in a}, {"a", "z"})
        errors = {str(a["id"]): a["error"] for a in answers if "error" in a}
        self.assertEqual(set(errors), {"2", "3", "4", "none", "far", "hot", "url", "long", "10"})
        self.assertIn("line 1", errors["4"]["message"])
        self.assertIn("line 7", errors["hot"]["where"])
        self.assertEqual(set(errors["long"]), {"code", "message", "where", "remedy"})
        self.assertIn("/v1/chat/completions", errors["url"]["remedy"])
        # Going on changes nothing and still tells of the lines that failed.
        before = self.output.read_bytes()
        again = run(*self.words("--resume"))
        self.assertEqual(again.code, 1)
        self.assertEqual(self.output.read_bytes(), before)

    def test_request_bodies_are_answered_with_the_bodies_of_their_api(self):
        model, message = "DeepSeek-V4.1-Flash", {"role": "user", "content": "What is 37 + 45?"}
        tools = json.loads((ROOT / "examples/tools.json").read_text())
        alarm = {"name": "set_alarm", "description": "Set an alarm",
                 "input_schema": tools[0]["function"]["parameters"]}
        self.write({"id": "chat", "url": "/v1/chat/completions", "body": {"model": model, "messages": [message]}},
                   {"id": "responses", "url": "/v1/responses", "body": {"model": model, "input": "What is 37 + 45?"}},
                   {"id": "messages", "url": "/v1/messages", "body": {
                       "model": model, "max_tokens": 200, "tools": [alarm],
                       "messages": [{"role": "user", "content": "Set an alarm for 04:37."}]}},
                   {"id": "stop", "url": "/v1/messages", "body": {
                       "model": model, "messages": [message], "stop_sequences": [" 82"]}},
                   {"id": "logprobs", "method": "POST", "url": "/v1/chat/completions", "body": {
                       "model": "deepseek-flash", "messages": [message], "reasoning_effort": "none", "max_tokens": 3,
                       "logprobs": True, "top_logprobs": 2}},
                   {"id": "plain", "prompt": "The capital of", "max_tokens": 3},
                   {"id": "ids", "token_ids": PROMPT})
        self.succeeds(*self.words())
        found = {a["id"]: a["response"] for a in self.answers()}
        thought, said = "30 + 40 = 70. 7 + 5 = 12. Together 82.", "The answer is 82."

        chat = found["chat"]
        self.assertEqual((chat["object"], chat["model"]), ("chat.completion", model))
        self.assertRegex(chat["id"], "^chatcmpl-[0-9a-f]{32}$")
        self.assertLess(abs(chat["created"] - time.time()), 300)
        self.assertEqual(chat["choices"][0]["message"],
                         {"role": "assistant", "content": said, "reasoning_content": thought})
        self.assertEqual(chat["choices"][0]["finish_reason"], "stop")
        usage = chat["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
        self.assertTrue(0 < reasoning < usage["completion_tokens"])

        responses = found["responses"]
        self.assertEqual((responses["object"], responses["status"]), ("response", "completed"))
        self.assertEqual([item["type"] for item in responses["output"]], ["reasoning", "message"])
        self.assertEqual(responses["output"][1]["content"][0]["text"], said)
        self.assertEqual(responses["usage"]["output_tokens_details"]["reasoning_tokens"], reasoning)
        self.assertEqual(responses["usage"]["output_tokens"], usage["completion_tokens"])

        messages = found["messages"]
        self.assertEqual((messages["type"], messages["stop_reason"]), ("message", "tool_use"))
        self.assertEqual(messages["content"][-1]["input"], {"hour": 4, "minute": 37})
        self.assertEqual((found["stop"]["stop_reason"], found["stop"]["stop_sequence"]), ("stop_sequence", " 82"))
        self.assertEqual(found["stop"]["content"][-1]["text"], "The answer is")

        choice = found["logprobs"]["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual([len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]], [2] * 3)
        self.assertEqual(len({a["id"] for a in found.values() if "id" in a}), 5)
        self.assertEqual(found["ids"]["text"], "The chemical symbol of iron is Fe.")
        self.assertEqual(len(found["plain"]["token_ids"]), 3)

    def test_refused_request_bodies_have_the_error_of_their_api(self):
        model, message = "DeepSeek-V4.1-Flash", {"role": "user", "content": "json"}
        chat = {"model": model, "messages": [message]}
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        self.write({"id": "model", "url": "/v1/chat/completions", "body": {**chat, "model": "gpt"}},
                   {"id": "shape", "url": "/v1/chat/completions", "body": {**chat, "temperature": "hot"}},
                   {"id": "context", "url": "/v1/chat/completions", "body": {**chat, "max_tokens": 9000}},
                   {"id": "form", "url": "/v1/responses", "body": {
                       "model": model, "input": "json", "text": {"format": {
                           "type": "json_schema", "name": "t", "schema": {"type": "object", "if": {}}}}}},
                   {"id": "image", "url": "/v1/messages", "body": {
                       "model": model, "messages": [{"role": "user", "content": [picture]}]}},
                   {"id": "body", "url": "/v1/messages"}, {"id": "url", "body": chat},
                   {"id": "good", "url": "/v1/chat/completions", "body": {**chat, "max_tokens": 2}})
        ran = run(*self.words())
        self.assertEqual(ran.code, 1)
        self.assertIn("7 of 8 lines failed: lines 1, 2, 3, 4, 5, 6, 7", ran.err)
        errors = {a["id"]: a["error"] for a in self.answers() if "error" in a}
        kind = "invalid_request_error"
        self.assertEqual(errors["model"], {
            "message": "The supported API model names are DeepSeek-V4.1-Flash, but you passed gpt.", "type": kind,
            "param": "model", "code": kind})
        self.assertEqual((errors["shape"]["param"], errors["shape"]["code"]), ("temperature", kind))
        self.assertEqual(errors["context"]["code"], "context_length_exceeded")
        self.assertIn("if", errors["form"]["message"])
        self.assertEqual(errors["form"]["param"], "text.format.schema.if")
        self.assertEqual(set(errors["image"]), {"type", "message"})
        self.assertIn("images", errors["image"]["message"])
        self.assertIn("line 6", errors["body"]["where"])
        self.assertIn("line 7", errors["url"]["where"])

    def test_a_finished_run_resumes_to_nothing(self):
        self.write({"id": 1, "token_ids": PROMPT})
        self.succeeds(*self.words())
        before = self.output.read_bytes()
        self.succeeds(*self.words("--resume"))
        self.assertEqual(self.output.read_bytes(), before)

    def test_answers_are_never_overwritten(self):
        self.write({"id": 1, "token_ids": PROMPT})
        self.output.write_text('{"id":1,"response":{}}\n')
        self.fails(2, *self.words(), mentions=["--resume"])
        self.assertEqual(self.output.read_text(), '{"id":1,"response":{}}\n')

    def test_a_torn_last_line_is_cut_and_asked_again(self):
        self.write({"id": 1, "token_ids": PROMPT}, {"id": 2, "token_ids": PROMPT})
        self.succeeds(*self.words())
        whole = self.output.read_bytes()
        first = whole.split(b"\n")[0] + b"\n"
        for torn in (1, 10, len(whole) - len(first) - 1):
            with self.subTest(torn):
                self.output.write_bytes(whole[: len(first) + torn])
                ran = self.succeeds(*self.words("--resume"))
                self.assertIn("torn", ran.err)
                self.assertEqual(sorted(a["id"] for a in self.answers()), [1, 2])

    def test_a_file_that_is_not_ours_is_refused(self):
        self.write({"id": 1, "token_ids": PROMPT})
        self.output.write_text("hello\n")
        self.fails(3, *self.words("--resume"), mentions=["line 1"])
        self.assertEqual(self.output.read_text(), "hello\n")

    def many(self, count):
        self.write(*({"id": i, "token_ids": PROMPT + [40 + i % 50] * (i % 7), "max_tokens": 6, "ignore_eos": True}
                     for i in range(count)))

    def start(self, *more):
        return subprocess.Popen([PROGRAM, *map(str, self.words(*more))], env=environment(), stderr=subprocess.PIPE)

    def test_nothing_is_lost_or_doubled_when_the_program_is_killed_at_any_point(self):
        # Killed by progress, not by the clock: each run dies after some random number of further bytes, so a faster
        # machine or a faster program is killed as often.
        lines = 400
        self.many(lines)
        chance = random.Random(5)
        kills = 0
        for attempt in range(60):
            size = self.output.stat().st_size if self.output.exists() else 0
            target = size + chance.randrange(1, 12000)
            program = self.start("--resume", "--concurrency", "4")
            while program.poll() is None and not (self.output.exists() and self.output.stat().st_size >= target):
                time.sleep(0.0005)
            if program.poll() is None:
                program.send_signal(signal.SIGKILL)
                kills += 1
            program.communicate()
            if program.returncode == 0:
                break
        else:
            self.succeeds(*self.words("--resume"))
        self.assertGreater(kills, 1)
        answers = self.answers()
        self.assertEqual(sorted(a["id"] for a in answers), list(range(lines)))
        # The texts are those of a run in one go.
        self.output.unlink()
        self.succeeds(*self.words())
        whole = {a["id"]: a["response"]["token_ids"] for a in self.answers()}
        self.assertEqual({a["id"]: a["response"]["token_ids"] for a in answers}, whole)

    def test_an_interrupt_leaves_whole_lines_and_exits_130(self):
        self.many(2000)
        program = self.start("--concurrency", "4")
        end = time.monotonic() + 60
        while time.monotonic() < end and not (self.output.exists() and self.output.stat().st_size > 3000):
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130)
        self.assertIn(b"--resume", err)
        ids = [a["id"] for a in self.answers()]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertGreater(len(ids), 0)

    def test_progress_shows_done_total_and_rate_on_a_terminal_only(self):
        self.many(40)
        main, side = pty.openpty()
        program = subprocess.Popen([PROGRAM, *map(str, self.words("--concurrency", "2"))], env=environment(), stderr=side)
        os.close(side)
        seen = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            seen += piece
        os.close(main)
        self.assertEqual(program.wait(timeout=60), 0)
        self.assertRegex(seen.decode(), r"answers \d+/40 lines, \d+ %")
        self.assertTrue(seen.endswith(b"\x1b[K"))  # the line is gone at the end
        self.output.unlink()
        self.assertEqual(self.succeeds(*self.words()).err, "")

    def test_two_runs_cannot_write_the_same_file(self):
        self.many(2000)
        program = self.start()
        end = time.monotonic() + 60
        while time.monotonic() < end and not (self.output.exists() and self.output.stat().st_size > 0):
            time.sleep(0.02)
        try:
            self.fails(2, *self.words("--resume"), mentions=["another run"])
        finally:
            program.kill()
            program.communicate()

    def test_a_full_disk_is_an_error_and_not_a_lost_line(self):
        self.write({"id": 1, "token_ids": PROMPT})
        ran = run("generate", "--input", self.input, "--output", "/dev/full", "--greedy")
        self.assertEqual(ran.code, 1)
        self.assertIn("/dev/full", ran.err)

    def test_missing_files(self):
        self.fails(3, *self.words(), mentions=["in.jsonl"])
        self.write({"id": 1, "token_ids": PROMPT})
        self.output = self.at / "no" / "out.jsonl"
        self.fails(3, *self.words(), mentions=["out.jsonl"])

    def test_an_empty_input_is_done_at_once(self):
        self.write("")
        self.succeeds(*self.words())
        self.assertEqual(self.answers(), [])


if __name__ == "__main__":
    unittest.main()
