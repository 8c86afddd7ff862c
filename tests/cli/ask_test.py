"""generate (one prompt) and chat: answers, streams, statistics (design/cli.md 2)."""
import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from program import PROGRAM, ROOT, ProgramTest, environment, run

SUM = ["--chat", "What is 37 + 45?", "--effort", "75", "--greedy"]


class Generate(ProgramTest):
    def test_the_answer_goes_to_stdout_and_nothing_else(self):
        ran = self.succeeds("generate", *SUM)
        self.assertEqual((ran.out, ran.err), ("The answer is 82.\n", ""))

    def test_thinking_is_separate_from_the_answer(self):
        answer = self.succeeds("generate", *SUM, "--json").json()
        self.assertEqual(answer["text"], "The answer is 82.")
        self.assertEqual(answer["reasoning"], "30 + 40 = 70. 7 + 5 = 12. Together 82.")
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(set(answer), {"index", "text", "reasoning", "tool_calls", "token_ids", "finish_reason", "usage",
                                       "timing"})
        self.assertEqual(answer["usage"]["completion_tokens"], len(answer["token_ids"]))
        # All that was generated but "</think>", "The answer is 82." and the end token.
        text_tokens = int(self.succeeds("tokenize", "--count", answer["text"]).out)
        self.assertEqual(answer["usage"]["reasoning_tokens"], len(answer["token_ids"]) - text_tokens - 2)
        self.assertEqual(self.succeeds("generate", *SUM, "--reasoning", "only").out, answer["reasoning"] + "\n")

    def test_reasoning_goes_to_stderr_when_it_is_asked_for(self):
        ran = self.succeeds("generate", *SUM, "--reasoning", "show")
        self.assertEqual((ran.out, ran.err), ("The answer is 82.\n", "30 + 40 = 70. 7 + 5 = 12. Together 82.\n"))
        self.assertEqual(self.succeeds("generate", *SUM, "--reasoning", "hide").err, "")

    def test_backends_drafts_and_replay_do_not_change_a_short_answer(self):
        for words in (["--drafts", "0"], ["--drafts", "2"], ["--backend", "reference"], ["--replay", "off"],
                      ["--threads", "1"], ["--step-rows", "7"], ["--n", "1"]):
            with self.subTest(" ".join(words)):
                self.assertEqual(self.succeeds("generate", *SUM, *words).out, "The answer is 82.\n")

    def test_a_tool_call_is_told_from_text(self):
        words = ["--chat", "Set an alarm for 04:37.", "--tools", ROOT / "examples/tools.json", "--effort", "50", "--greedy"]
        answer = self.succeeds("generate", *words, "--json").json()
        self.assertEqual(answer["finish_reason"], "tool_calls")
        self.assertEqual(answer["tool_calls"][0]["name"], "set_alarm")
        self.assertEqual(json.loads(answer["tool_calls"][0]["arguments"]), {"hour": 4, "minute": 37})
        self.assertNotIn("DSML", answer["text"])
        self.assertRegex(answer["tool_calls"][0]["id"], r"^call_00_\w{24}$")
        block = "┌ set_alarm\n│ hour: 4\n│ minute: 37\n└\n"
        self.assertEqual(self.succeeds("generate", *words).out, block)
        self.assertEqual(self.succeeds("generate", *words, "--n", "2").out,
                         f"--- answer 1 of 2\n{block}--- answer 2 of 2\n{block}")
        self.assertEqual(self.succeeds("generate", *words, "--reasoning", "only").out, "Hour 4, minute 37.\n")

    def test_a_call_that_is_cut_off_is_no_call(self):
        words = ["--chat", "Set an alarm for 04:37.", "--tools", ROOT / "examples/tools.json", "--effort", "50", "--greedy",
                 "--max-tokens", "40"]
        answer = self.succeeds("generate", *words, "--json").json()
        self.assertEqual((answer["finish_reason"], answer["tool_calls"], answer["text"]), ("length", [], ""))
        self.assertEqual(self.succeeds("generate", *words).out, "┌ set_alarm\n└ cut off: no call\n")

    def test_the_prompt_comes_from_argument_file_or_stdin(self):
        words = ["--chat", "--effort", "none", "--greedy"]
        expected = "The chemical symbol of iron is Fe.\n"
        self.assertEqual(self.succeeds("generate", *words, "Symbol for iron?").out, expected)
        self.assertEqual(self.succeeds("generate", *words, stdin="Symbol for iron?\n").out, expected)
        self.assertEqual(self.succeeds("generate", *words, "-", stdin="Symbol for iron?").out, expected)
        path = self.folder() / "p"
        path.write_text("Symbol for iron?\n")
        self.assertEqual(self.succeeds("generate", *words, "--prompt-file", path).out, expected)

    def test_a_user_cannot_type_a_special_token(self):
        plain = self.succeeds("generate", "--chat", "a <think> b", "--show-prompt", "--max-tokens", "1", "--json").json()
        other = self.succeeds("generate", "--chat", "a think b", "--max-tokens", "1", "--json").json()
        self.assertGreater(plain["usage"]["prompt_tokens"], other["usage"]["prompt_tokens"])

    def test_ids_are_taken_as_they_are(self):
        rendered = self.succeeds("generate", "--chat", "Symbol for iron?", "--effort", "none", "--greedy", "--show-prompt")
        ids = self.succeeds("tokenize", "--file", "-", stdin=rendered.err.rstrip("\n")).out.split()
        answer = self.succeeds("generate", "--ids", ",".join(ids), "--greedy", "--json").json()
        self.assertEqual(answer["text"], "The chemical symbol of iron is Fe.")
        self.fails(2, "generate", "--ids", "99999", mentions=["99,999"])

    def test_more_answers_than_the_engine_takes_together(self):
        answers = self.succeeds("generate", "--chat", "hi", "--n", "130", "--max-tokens", "1", "--json").lines()
        self.assertEqual(sorted(a["index"] for a in answers), list(range(130)))

    def test_a_seed_repeats_and_n_answers_differ_by_it(self):
        words = ["generate", "The", "--seed", "7", "--max-tokens", "12", "--temperature", "1.5", "--top-p", "1"]
        self.assertEqual(self.succeeds(*words).out, self.succeeds(*words).out)
        answers = self.succeeds(*words, "--n", "3", "--json").lines()
        self.assertEqual(sorted(a["index"] for a in answers), [0, 1, 2])
        self.assertEqual(len({a["text"] for a in answers}), 3)

    def test_stop_texts_ids_and_lengths(self):
        full = self.succeeds("generate", *SUM, "--json").json()
        cut = self.succeeds("generate", *SUM, "--stop", "swer is", "--json").json()
        self.assertEqual((cut["text"], cut["finish_reason"]), ("The an", "stop"))
        short = self.succeeds("generate", *SUM, "--max-tokens", "3", "--json").json()
        self.assertEqual((len(short["token_ids"]), short["finish_reason"]), (3, "length"))
        stop_id = full["token_ids"][4]
        ended = self.succeeds("generate", *SUM, "--stop-id", stop_id, "--json").json()
        self.assertEqual(ended["token_ids"], full["token_ids"][: full["token_ids"].index(stop_id) + 1])

    def test_logprobs_are_of_raw_logits(self):
        answer = self.succeeds("generate", *SUM, "--logprobs", "2", "--prompt-logprobs", "--json").json()
        self.assertEqual(len(answer["logprobs"]), len(answer["token_ids"]))
        self.assertEqual(len(answer["prompt_logprobs"]), answer["usage"]["prompt_tokens"] - 1)
        for token, entry in zip(answer["token_ids"], answer["logprobs"]):
            self.assertEqual(entry["id"], token)
            self.assertEqual(entry["top"][0]["id"], token)  # greedy
            self.assertLessEqual(entry["logprob"], 0)

    def test_statistics_go_to_stderr(self):
        ran = self.succeeds("generate", *SUM, "--stats")
        self.assertEqual(ran.out, "The answer is 82.\n")
        for text in ("cached", "replayed", "new", "first token", "tokens/s", "by position", "peak memory"):
            self.assertIn(text, ran.err)

    def test_a_whole_request_of_each_api_is_answered(self):
        path, model = self.folder() / "body.json", "DeepSeek-V4.1-Flash"
        message = {"role": "user", "content": "Symbol for iron?"}
        bodies = {"chat": {"messages": [message], "thinking": {"type": "disabled"}, "temperature": 0},
                  "responses": {"input": "Symbol for iron?", "reasoning": {"effort": "none"}, "temperature": 0},
                  "messages": {"messages": [message], "max_tokens": 50, "thinking": {"type": "disabled"},
                               "temperature": 0}}
        for api, body in bodies.items():
            with self.subTest(api):
                path.write_text(json.dumps({"model": model, **body}))
                words = ["generate", "--request", path, *([] if api == "chat" else ["--api", api])]
                self.assertEqual(self.succeeds(*words).out, "The chemical symbol of iron is Fe.\n")
        self.assertEqual(self.succeeds("generate", "--request", "-", stdin=json.dumps({"model": model, **bodies["chat"]})).out,
                         "The chemical symbol of iron is Fe.\n")

    def test_the_settings_of_a_request_hold_where_no_option_says_otherwise(self):
        path = self.folder() / "body.json"
        path.write_text(json.dumps({"model": "deepseek-flash", "messages": [{"role": "user", "content": "Symbol for iron?"}],
                                    "reasoning_effort": "none", "temperature": 0, "stop": " Fe", "max_tokens": 6,
                                    "logprobs": True, "top_logprobs": 2}))
        answer = self.succeeds("generate", "--request", path, "--json").json()
        self.assertEqual((answer["text"], answer["finish_reason"]), ("The chemical symbol of iron is", "length"))
        self.assertEqual([len(entry["top"]) for entry in answer["logprobs"]], [2] * 6)
        answer = self.succeeds("generate", "--request", path, "--max-tokens", "50", "--json").json()
        self.assertEqual((answer["text"], answer["finish_reason"]), ("The chemical symbol of iron is", "stop"))
        answer = self.succeeds("generate", "--request", path, "--stop", "symbol", "--json").json()
        self.assertEqual(answer["text"], "The chemical ")

    def test_a_request_that_cannot_be_answered_is_refused(self):
        path = self.folder() / "body.json"

        def body(**members):
            path.write_text(json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "json"}],
                                        **members}))
            return ["generate", "--request", path]

        self.fails(3, *body(model="gpt"), mentions=["DeepSeek-V4.1-Flash", "gpt"])
        self.fails(3, *body(messages=5), mentions=["body.json, messages"])
        self.fails(3, *body(), "--api", "responses", mentions=["--api", "responses"])
        self.fails(3, *body(max_tokens=100000), mentions=["maximum context length is 8192", "--context"])
        schema = {"type": "object", "patternProperties": {"^x": {"type": "integer"}}}
        self.fails(2, *body(response_format={"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}),
                   mentions=["patternProperties", "body.json, response_format.json_schema.schema.patternProperties"])
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        self.fails(2, *body(messages=[{"role": "user", "content": [picture]}]), mentions=["images", "messages[0]"])
        path.write_text("{")
        self.fails(3, "generate", "--request", path, mentions=["body.json"])
        for words in (["--chat"], ["x"], ["--ids", "0"], ["--no-bos"]):
            self.fails(2, "generate", "--request", path, *words, within=1)
        self.fails(2, "generate", "x", "--api", "chat", mentions=["--request"], within=1)

    def test_constraints_that_cannot_be_enforced_are_refused(self):
        path = self.folder() / "schema.json"
        path.write_text('{"type": "object", "properties": {"a": {"type": 5}}}')
        self.fails(2, "generate", "--chat", "x", "--schema", path, mentions=["Invalid json schema", "schema.json"])
        path.write_text('{"type": "object", "properties": {"a": {"not": {}}}}')
        self.fails(2, "generate", "--chat", "x", "--schema", path, mentions=["not", "--schema, properties.a.not"], within=1)
        self.fails(2, "generate", "--chat", "x", "--regex", "(?=a)b", mentions=["--regex"], within=1)
        self.fails(2, "generate", "--chat", "x", "--regex", "(", mentions=["no regular expression"])
        self.fails(3, "generate", "--chat", "x", "--schema", "/nonexistent", mentions=["/nonexistent"])
        self.fails(2, "generate", "--chat", "x", "--schema", path, "--regex", "a", mentions=["--regex"])
        self.fails(2, "generate", "--chat", "x", "--schema", path, "--tools", path, mentions=["--tools"])

    def test_a_plain_continuation_is_not_read_as_a_chat(self):
        # "</think>" and markup are text here. Ids: those of a prompt that ends in <think>.
        rendered = self.succeeds("generate", *SUM, "--show-prompt")
        ids = self.succeeds("tokenize", "--file", "-", stdin=rendered.err.rstrip("\n")).out.split()
        answer = self.succeeds("generate", "--ids", ",".join(ids), "--greedy", "--json").json()
        self.assertEqual(answer["text"], "30 + 40 = 70. 7 + 5 = 12. Together 82.</think>The answer is 82.")
        self.assertEqual((answer["reasoning"], answer["usage"]["reasoning_tokens"]), ("", 0))

    def test_exits_of_bad_requests(self):
        self.fails(2, "generate", "x", "--context", "99999", mentions=["99,999", "8,192"])
        self.fails(3, "generate", "--context", "64", stdin="word " * 500, mentions=["64"])
        self.fails(3, "generate", stdin=b"a\xff", mentions=["UTF-8 at byte 1"])
        self.fails(2, "generate", "--chat", "", mentions=["empty"])
        self.fails(3, "generate", "--chat", "x", "--tools", "/nonexistent", mentions=["/nonexistent"])
        self.fails(2, "generate", "x", "--logit-bias", "5", mentions=["--logit-bias"])
        self.fails(3, "generate", "--prompt-file", "/nonexistent", mentions=["/nonexistent"])

    def test_an_interrupted_answer_exits_130(self):
        program = subprocess.Popen([PROGRAM, "generate", "The", "--ignore-eos", "--greedy"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        first = os.read(program.stdout.fileno(), 1)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
        self.assertEqual(program.returncode, 130)
        self.assertTrue((first + out).endswith(b"\n"))
        self.assertIn(b"interrupted", err)


class Chat(ProgramTest):
    def test_each_line_of_a_pipe_is_a_message(self):
        ran = self.succeeds("chat", "--effort", "none", "--greedy",
                            stdin="Symbol for iron?\nSymbol for zinc?")
        self.assertEqual(ran.out, "The chemical symbol of iron is Fe.\nThe chemical symbol of zinc is Zn.\n")
        self.assertEqual(ran.err, "")

    def test_slash_commands(self):
        path = self.folder() / "c.json"
        ran = self.succeeds("chat", "--effort", "none", stdin=f"/set temperature 0\nSymbol for iron?\n/tokens\n/stats\n"
                            f"/save {path}\n/undo\n/load {path}\n/hepl\n/set temprature 1\n/new\n/exit\nnever read\n")
        self.assertEqual(ran.out, "The chemical symbol of iron is Fe.\n")
        for text in ("of 8,192 tokens", "first token", "saved", "2 messages", "did you mean /help?",
                     "did you mean temperature?"):
            self.assertIn(text, ran.err)
        self.assertEqual([m["role"] for m in json.loads(path.read_text())["messages"]], ["user", "assistant"])

    def test_the_result_of_a_call_is_the_next_line(self):
        at = self.folder() / "c.json"
        words = ["chat", "--effort", "50", "--greedy", "--tools", ROOT / "examples/tools.json"]
        ran = self.succeeds(*words, stdin=f"Set an alarm for 04:37.\n/tokens\ndone\n/save {at}\n")
        self.assertEqual(ran.out, "┌ set_alarm\n│ hour: 4\n│ minute: 37\n└\nThe alarm is set for 04:37.\n")
        saved = json.loads(at.read_text())
        self.assertEqual([m["role"] for m in saved["messages"]], ["user", "assistant", "tool", "assistant"])
        self.assertEqual(saved["messages"][1]["tool_calls"][0]["id"], saved["messages"][2]["tool_call_id"])
        self.assertEqual(saved["messages"][2]["content"], "done")
        # What was saved is a request, and a conversation that goes on.
        saved["messages"].pop()
        at.write_text(json.dumps(saved))
        self.assertEqual(self.succeeds("generate", "--request", at, "--greedy").out, "The alarm is set for 04:37.\n")
        saved["messages"].pop()
        at.write_text(json.dumps(saved))
        again = self.succeeds("chat", "--greedy", stdin=f"/load {at}\ndone\n")
        self.assertEqual((again.out, again.err), ("The alarm is set for 04:37.\n", "2 messages\n"))

    def test_a_result_may_begin_with_a_slash_and_be_empty(self):
        at = self.folder() / "c.json"
        words = ["chat", "--effort", "50", "--greedy", "--tools", ROOT / "examples/tools.json"]
        for result in ("/etc/alarm", ""):
            self.succeeds(*words, stdin=f"Set an alarm for 04:37.\n{result}\n/save {at}\n")
            self.assertEqual(json.loads(at.read_text())["messages"][2]["content"], result)

    def test_instructions_effort_and_tools_are_saved_and_loaded(self):
        at = self.folder() / "c.json"
        self.succeeds("chat", stdin=f"/system Be brief.\n/effort 33\n/tools {ROOT / 'examples/tools.json'}\n/save {at}\n")
        saved = json.loads(at.read_text())
        self.assertEqual(saved["messages"], [{"role": "system", "content": "Be brief."}])
        self.assertEqual((saved["reasoning_effort"], len(saved["tools"])), (33, 2))
        other = self.folder() / "d.json"
        ran = self.succeeds("chat", stdin=f"/load {at}\n/new\n/save {other}\n/effort 200\n/tools /nonexistent\n")
        self.assertEqual(json.loads(other.read_text()), saved)
        for text in ("1 messages", "--effort", "/nonexistent"):
            self.assertIn(text, ran.err)

    def test_files_that_earlier_versions_saved_are_loaded(self):
        at = self.folder() / "c.json"
        call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
        at.write_text(json.dumps({"messages": [
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}))
        ran = self.succeeds("chat", "--effort", "none", "--greedy", stdin=f"/load {at}\nSymbol for iron?\n")
        self.assertIn("5 messages", ran.err)
        self.assertNotEqual(ran.out, "")
        at.write_text('{"messages": [{"role": "judge", "content": "x"}]}')
        self.assertIn("judge", self.succeeds("chat", stdin=f"/load {at}\n").err)

    def test_retry_asks_the_same_again(self):
        ran = self.succeeds("chat", "--effort", "none", "--greedy", stdin="Symbol for iron?\n/retry\n")
        self.assertEqual(ran.out, "The chemical symbol of iron is Fe.\n" * 2)

    def test_on_a_terminal_ctrl_c_stops_the_answer_and_then_leaves(self):
        main, side = pty.openpty()
        program = subprocess.Popen([PROGRAM, "chat", "--effort", "none", "--ignore-eos", "--greedy"], stdin=side,
                                   stdout=side, stderr=side, env=environment({"NO_COLOR": "1"}), start_new_session=True)
        os.close(side)
        seen = b""

        def read_until(text, seconds=30):
            nonlocal seen
            end = time.monotonic() + seconds
            while text not in seen and time.monotonic() < end:
                if select.select([main], [], [], 0.1)[0]:
                    try:
                        seen += os.read(main, 4096)
                    except OSError:
                        break
            self.assertIn(text, seen)
            seen = seen.split(text, 1)[1]

        try:
            read_until(b"> ")
            os.write(main, b"Symbol for iron?\n")
            read_until(b"Fe")
            program.send_signal(signal.SIGINT)
            read_until(b"(stopped)")
            read_until(b"> ")
            program.send_signal(signal.SIGINT)
            self.assertEqual(program.wait(timeout=30), 130)
        finally:
            program.kill()
            program.wait()
            os.close(main)

    def test_a_terminal_says_whose_result_it_waits_for(self):
        main, side = pty.openpty()
        program = subprocess.Popen([PROGRAM, "chat", "--effort", "50", "--greedy", "--tools", ROOT / "examples/tools.json"],
                                   stdin=side, stdout=side, stderr=side, env=environment(), start_new_session=True)
        os.close(side)
        seen, sent = b"", 0
        lines = [b"Set an alarm for 04:37.\n", b"done\n", b"/exit\n"]
        prompts = [b"> ", b"result of set_alarm> ", b"\r\n> "]
        end = time.monotonic() + 60
        while time.monotonic() < end and program.poll() is None:
            if not select.select([main], [], [], 0.1)[0]:
                continue
            try:
                seen += os.read(main, 4096)
            except OSError:
                break
            if sent < len(lines) and prompts[sent] in seen:
                os.write(main, lines[sent])
                sent += 1
        self.assertEqual(program.wait(timeout=30), 0, seen)
        os.close(main)
        self.assertIn(b"\x1b[2mH", seen)  # thinking is dim
        self.assertIn("\x1b[2m│\x1b[0m hour: 4".encode(), seen)  # and so is the frame of the call

    def test_colours_only_on_a_terminal_without_no_color(self):
        def dimmed(env):
            main, side = pty.openpty()
            done = subprocess.Popen([PROGRAM, "generate", *SUM], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=side, env=environment(env))
            os.close(side)
            seen = b""
            while True:
                try:
                    piece = os.read(main, 4096)
                except OSError:
                    break
                if not piece:
                    break
                seen += piece
            done.wait(timeout=60)
            os.close(main)
            return seen

        self.assertIn(b"\x1b[2m", dimmed({}))
        plain = dimmed({"NO_COLOR": "1"})
        self.assertNotIn(b"\x1b", plain)
        self.assertIn(b"Together 82.", plain)

    def test_usage(self):
        self.fails(2, "chat", "--effort", "much", mentions=["--effort"])
        self.fails(2, "chat", "--endpoint", "http://127.0.0.1:1", mentions=["--endpoint", "yet"])


if __name__ == "__main__":
    unittest.main()
