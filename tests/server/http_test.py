"""Raw HTTP against the real program with the embedded model: conformance, security and observability cases."""
import gzip
import json
import socket
import struct
import unittest

from running_server import MODEL, SANITIZED, Server, chat_body, messages_body, responses_body

TOOL = {"type": "object", "properties": {"cmd": {"type": "string"}}}


def setUpModule():
    global server
    server = Server("--max-body", "32MiB", "--context", "4096", "--debug-routes")


def tearDownModule():
    code = server.end()
    assert code == 0, server.log()


class Conformance(unittest.TestCase):
    maxDiff = None

    def test_case_http_01_a_prompt_longer_than_the_context(self):
        text = " zebra" * 5000
        answer = server.post("/v1/chat/completions", chat_body(text, max_tokens=100))
        self.assertEqual(answer.status, 400)
        error = answer.json()["error"]
        self.assertEqual((error["type"], error["code"]), ("invalid_request_error", "context_length_exceeded"))
        count = server.post("/v1/tokenize", chat_body(text)).json()["count"]
        self.assertGreater(count, 4096)
        for number in (count, 4096, 100):
            self.assertIn(str(number), error["message"])

    def test_case_http_02_count_tokens_equals_the_input_of_the_call(self):
        body = messages_body("hi", system="You are X.", tools=[{"name": "f", "description": "d", "input_schema": TOOL}])
        counted = server.post("/v1/messages/count_tokens", body).json()["input_tokens"]
        for _ in range(2):  # the second time from the cache
            usage = server.post("/v1/messages", body).json()["usage"]
            self.assertEqual(counted, usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"])

    def test_case_http_03_input_tokens_are_those_that_were_not_cached(self):
        text = "a long story about a cat that sat on a mat " * 40  # more than a block of 128 tokens
        server.post("/v1/messages", messages_body(text))
        usage = server.post("/v1/messages", messages_body(text)).json()["usage"]
        count = server.post("/v1/messages/count_tokens", messages_body(text)).json()["input_tokens"]
        self.assertGreaterEqual(usage["cache_read_input_tokens"], 128)
        self.assertEqual(usage["cache_read_input_tokens"] + usage["input_tokens"], count)

    def test_case_http_04_fields_of_a_stream(self):
        answer = server.post("/v1/chat/completions", chat_body(stream=True))
        self.assertEqual(answer.headers["X-Accel-Buffering"], "no")
        self.assertTrue(answer.headers["Content-Type"].startswith("text/event-stream"))

    def test_case_http_05_the_body_is_the_object_itself(self):
        self.assertEqual(server.chat().json()["object"], "chat.completion")
        self.assertEqual(server.post("/v1/responses", responses_body()).json()["object"], "response")
        self.assertEqual(server.post("/v1/messages", messages_body()).json()["type"], "message")
        self.assertEqual(server.post("/v1/messages", {"model": MODEL}).json()["type"], "error")

    def test_a_body_that_breaks_off_is_told_where(self):
        whole = json.dumps(chat_body())
        for cut in (1, 10, len(whole) // 2, len(whole) - 1):
            error = server.post("/v1/chat/completions", whole[:cut].encode()).json()["error"]
            self.assertIn("the text ends inside", error["message"])
            self.assertIn(f"at byte {cut}", error["message"])
        lines = server.post("/v1/messages", b'{\n  "model": "x",\n  "stream": yes\n}').json()["error"]["message"]
        self.assertIn("line 3, column 13", lines)

    def test_case_http_06_compressed_bodies(self):
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
        self.assertLess(len(body), 256)
        # One raw block in a frame that names its size: RFC 8878.
        zstd = b"\x28\xb5\x2f\xfd\x20" + bytes([len(body)]) + struct.pack("<I", 1 | len(body) << 3)[:3] + body
        before = server.peak_kib()
        for encoding, packed, status in (("zstd", zstd, 200), ("gzip", gzip.compress(bytes(100_000_000), 9), 413),
                                         ("br", b"anything", 415), ("gzip", b"no gzip", 400)):
            answer = server.post("/v1/chat/completions", packed, {"Content-Encoding": encoding})
            self.assertEqual(answer.status, status, answer.body)
        if not SANITIZED:
            self.assertLess(server.peak_kib() - before, 80 * 1024)

    def test_case_http_07_unsupported_values(self):
        for more in ({"n": 2}, {"logprobs": True, "top_logprobs": 21}, {"stop": [f"s{i}" for i in range(17)]},
                     {"temperature": 5}, {"max_tokens": 0}, {"max_tokens": 500000}):
            with self.subTest(more):
                self.assertEqual(server.chat(**more).status, 400)

    def test_a_whole_answer_says_what_the_model_says(self):
        answer = server.chat().json()
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        text = answer["choices"][0]["message"]["content"]
        self.assertIn("12", text)
        self.assertIn("12", server.post("/v1/messages", messages_body()).json()["content"][0]["text"])
        self.assertIn("12", server.post("/v1/responses", responses_body()).json()["output"][0]["content"][0]["text"])

    def test_the_same_question_alone_streamed_and_among_others_has_the_same_answer(self):
        text = server.chat().json()["choices"][0]["message"]["content"]
        events = server.post("/v1/chat/completions", chat_body(stream=True)).events()
        self.assertEqual(events[-1][1], "[DONE]")
        chunks = [json.loads(data) for _, data in events[:-1]]
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks), text)

    def test_a_seed_repeats_an_answer(self):
        body = chat_body("Tell me about cats.", temperature=1, seed=7, max_tokens=24)
        first, second = (server.post("/v1/chat/completions", body).json()["choices"] for _ in range(2))
        self.assertEqual(first, second)

    def test_thinking_comes_apart_from_the_answer(self):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "What is 7 + 5?"}], "reasoning_effort": "low", "seed": 1, "max_tokens": 400}
        answer = server.post("/v1/chat/completions", body).json()
        self.assertIn("reasoning_content", answer["choices"][0]["message"])
        details = answer["usage"]["completion_tokens_details"]
        self.assertLessEqual(details["reasoning_tokens"], answer["usage"]["completion_tokens"])

    def test_a_schema_is_kept(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}},
                  "required": ["n", "ok"], "additionalProperties": False}
        answer = server.chat("Give me json.", max_tokens=200, response_format={"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}).json()
        if answer["choices"][0]["finish_reason"] == "stop":
            value = json.loads(answer["choices"][0]["message"]["content"])
            self.assertEqual(set(value), {"n", "ok"})

    def test_a_required_call_is_a_call(self):
        tools = [{"type": "function", "function": {"name": "set_alarm", "strict": True, "parameters": {
            "type": "object", "properties": {"hour": {"type": "integer"}}, "required": ["hour"], "additionalProperties": False}}}]
        answer = server.chat("Wake me at 4.", tools=tools, tool_choice="required", max_tokens=200).json()
        choice = answer["choices"][0]
        self.assertIn(choice["finish_reason"], ("tool_calls", "length"), answer)  # the miniature may go on calling
        call = choice["message"]["tool_calls"][0]
        self.assertEqual(call["function"]["name"], "set_alarm")
        self.assertIsInstance(json.loads(call["function"]["arguments"])["hour"], int)

    def test_log_probabilities_sum_to_what_they_should(self):
        answer = server.chat(logprobs=True, top_logprobs=3).json()
        entries = answer["choices"][0]["logprobs"]["content"]
        self.assertTrue(entries)
        for entry in entries:
            self.assertLessEqual(entry["logprob"], 0)
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(max(t["logprob"] for t in entry["top_logprobs"]), entry["logprob"])  # greedy

    def test_a_raw_completion_and_its_tokens(self):
        ids = server.post("/v1/tokenize", {"prompt": "Hello there", "add_special_tokens": False}).json()["tokens"]
        self.assertEqual(server.post("/v1/detokenize", {"tokens": ids}).json()["prompt"], "Hello there")
        by_text = server.post("/v1/completions", {"model": MODEL, "prompt": "Hello there", "temperature": 0, "max_tokens": 5, "add_special_tokens": False}).json()
        by_ids = server.post("/v1/completions", {"model": MODEL, "prompt": ids, "temperature": 0, "max_tokens": 5}).json()
        self.assertEqual(by_text["choices"], by_ids["choices"])

    def test_a_receipt_when_asked_for(self):
        answer = server.post("/v1/chat/completions", chat_body(), {"x-fathom-receipt": "1"}).json()
        self.assertEqual(answer["fathom"]["prompt_tokens"], answer["usage"]["prompt_tokens"])
        self.assertGreater(answer["fathom"]["total_ms"], 0)

    def test_unknown_paths_and_methods(self):
        missing = server.post("/v1/nothing", {})
        self.assertEqual(missing.status, 404)
        self.assertIn("/v1/chat/completions", missing.json()["error"]["message"])
        self.assertIn("GET /, ", missing.json()["error"]["message"])
        self.assertEqual(server.get("/v1/messages").status, 405)
        for method, path, allowed in (("TRACE", "/v1/messages", "OPTIONS, POST"), ("TRACE", "/health", "OPTIONS, GET, HEAD"),
                                      ("PUT", "/", "OPTIONS, GET, HEAD")):
            answer = server.ask(method, path)
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, allowed), path)
        self.assertEqual(server.ask("BREW", "/health").status, 501)
        self.assertEqual(server.ask("HEAD", "/health").status, 200)
        self.assertEqual(server.ask("HEAD", "/health").body, b"")

    def test_malformed_http_gets_an_answer_and_no_more(self):
        for raw in (b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
                connection.sendall(raw)
                first = connection.recv(4096)
                self.assertRegex(first.split(b"\r\n")[0], rb"HTTP/1\.[01] (400|501|505)")
        self.assertEqual(server.get("/health").status, 200)

    def test_a_body_beyond_the_limit_is_413(self):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            self.assertIn(b" 413 ", connection.recv(4096).split(b"\r\n")[0])

    def test_many_requests_on_one_connection(self):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
            got = b""
            while got.count(b'{"status":"ok"}') < 10:
                piece = connection.recv(65536)
                self.assertTrue(piece)
                got += piece


class Security(unittest.TestCase):
    def test_case_sec_01_image_addresses_that_point_inside(self):
        for url in ("http://169.254.169.254/latest/meta-data/", f"http://127.0.0.1:{server.port}/metrics", "http://[::1]/", "file:///some/file", "https://redirect.example/to-127.0.0.1"):
            with self.subTest(url):
                content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
                self.assertEqual(server.chat(content).status, 400)

    def test_an_image_is_refused_clearly(self):
        content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
        error = server.chat(content).json()["error"]
        self.assertIn("the model takes no images", error["message"])
        self.assertEqual(error["param"], "messages[0].content[0]")
        self.assertEqual(server.get("/v1/models").json()["data"][0]["input_modalities"], ["text"])

    def test_case_sec_02_a_deeply_nested_body(self):
        self.assertEqual(server.post("/v1/chat/completions", b"[" * 30000).status, 400)
        self.assertEqual(server.get("/health").status, 200)

    def test_case_codec_04_an_unpaired_surrogate(self):
        answer = server.post("/v1/chat/completions", b'{"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"ok \\ud83d tail"}]}')
        self.assertEqual(answer.status, 400)
        self.assertIn("messages[0].content", answer.json()["error"]["message"])


class Observability(unittest.TestCase):
    def test_case_obs_01_alive_and_ready_are_two_things(self):
        # The blocked device of the case is played by a fake engine: fathom/server/service_test.cpp.
        self.assertEqual(server.get("/health").json(), {"status": "ok"})
        ready = server.get("/ready?deep=1")
        self.assertEqual((ready.status, ready.json()["status"]), (200, "ready"))

    def test_case_obs_02_cached_tokens_in_every_usage(self):
        text = "the quick brown fox jumps over the lazy dog and runs away " * 30
        server.chat(text)
        usage = server.chat(text).json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, 128)
        self.assertEqual(usage["prompt_cache_hit_tokens"], cached)
        self.assertEqual(usage["prompt_cache_miss_tokens"], usage["prompt_tokens"] - cached)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        response = server.post("/v1/responses", responses_body(text)).json()["usage"]
        self.assertGreaterEqual(response["input_tokens_details"]["cached_tokens"], 128)

    def test_metrics_version_models_openapi_and_state(self):
        server.chat()
        self.assertGreaterEqual(server.metric("fathom_server_requests_total"), 1)
        self.assertIn("version", server.get("/version").json())
        ids = [m["id"] for m in server.get("/v1/models").json()["data"]]
        self.assertIn(MODEL, ids)
        self.assertEqual(server.get(f"/v1/models/{MODEL}").json()["id"], MODEL)
        self.assertEqual(server.get("/openapi.json").json()["openapi"], "3.1.0")
        self.assertTrue(server.get("/debug/state").json()["ready"])

    def test_one_log_line_a_request_without_its_text(self):
        server.post("/v1/chat/completions", chat_body("a secret question"), {"x-request-id": "find-me"})
        self.assertTrue(server.wait_for_log(r"request=find-me .*status=200 .*finish=stop"), server.log())
        self.assertEqual(len([line for line in server.log().splitlines() if "find-me" in line]), 1)
        self.assertNotIn("secret question", server.log())


if __name__ == "__main__":
    unittest.main()
