"""Start, keys, reload, drain, end: `fathom serve` as an operator sees it."""
import http.client
import http.server
import json
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from running_server import MODEL, PROGRAM, SECONDS, Server, chat_body, environment, messages_body, responses_body


def run(*words, env=None):
    return subprocess.run([PROGRAM, "serve", *words], env=environment(env), capture_output=True, text=True, timeout=60)


class Start(unittest.TestCase):
    def fails(self, code, *words, mentions=(), env=None):
        ran = run(*words, env=env)
        self.assertEqual(ran.returncode, code, ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)
        for text in mentions:
            self.assertIn(text, ran.stderr)

    def test_the_ready_line_names_address_model_context_and_sequences(self):
        server = Server("--sequences", "3", "--context", "512")
        self.addCleanup(server.end)
        for text in ("fathom serves the embedded miniature at http://127.0.0.1:", "context 512 tokens", "3 sequences", "no key needed"):
            self.assertIn(text, server.ready)

    def test_with_json_the_ready_line_is_json(self):
        server = Server("--json")
        self.addCleanup(server.end)
        self.assertEqual(json.loads(server.ready)["url"], server.url)
        server.chat()
        self.assertTrue(server.wait_for_log('"status":200'))
        for line in server.log().splitlines():
            json.loads(line)

    def test_mistakes_are_named_before_a_model_is_loaded(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.fails(1, "--listen", f"127.0.0.1:{port}", "--model", "/nonexistent", mentions=[str(port)])
        self.fails(2, "--listen", "nowhere", mentions=["--listen"])
        self.fails(2, "--tls-cert", "cert.pem", mentions=["--tls-key"])
        self.fails(2, "--codec-policy", "stricter", mentions=["strict"])
        self.fails(2, "--image-urls", "private", mentions=["--image-urls", "public"])
        for url in ("collector:4318", "http://", "http://:4318"):  # told before a model is looked for
            self.fails(2, "--trace-endpoint", url, "--model", "/nonexistent", mentions=["--trace-endpoint"])
        self.fails(2, "--step-limit", "0s", mentions=["--step-limit"])
        self.fails(3, "--api-key-file", "/nonexistent", mentions=["/nonexistent"])
        self.fails(3, "--listen", "127.0.0.1:0", "--model", "/nonexistent", mentions=["/nonexistent"])
        self.fails(2, "--tool-parser", "deepseek_v4", mentions=["--tool-parser"])  # case inst-01

    def test_options_come_from_a_file_and_from_the_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fathom.toml"
            path.write_text('[serve]\nmodel-name = ["my-model"]\nsequences = 2\n')
            server = Server("--config", str(path), env={"FATHOM_CONTEXT": "600"})
            self.addCleanup(server.end)
            self.assertIn("context 600 tokens, 2 sequences", server.ready)
            self.assertEqual(server.post("/v1/chat/completions", chat_body(model="MY-model")).status, 200)
            error = server.post("/v1/chat/completions", chat_body(model="other")).json()["error"]
            self.assertIn("my-model", error["message"])
            self.assertEqual(error["param"], "model")

    def test_strict_answers_errors_in_the_flat_form(self):
        server = Server("--codec-policy", "strict")
        self.addCleanup(server.end)
        self.assertIsNone(server.chat(temperature=5).json()["error"]["param"])
        self.assertIn("error", server.post("/v1/messages", messages_body(temperature=5)).json())


class Keys(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fathom-serve-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.file = Path(self.folder) / "keys.txt"
        self.file.write_text("secret-of-alice tenant=alice\nsecret-of-bob tenant=bob requests=1000\nsecret-of-carl concurrency=1 requests=2\n")
        self.server = Server("--api-key-file", str(self.file), env={"FATHOM_API_KEYS": "secret-of-dora,secret-of-eve"})
        self.addCleanup(self.server.end)

    def ask(self, key, body=None):
        return self.server.post("/v1/chat/completions", body or chat_body(), {"Authorization": f"Bearer {key}"})

    def test_without_a_key_there_is_no_access(self):
        self.assertIn("5 keys", self.server.ready)
        self.assertEqual(self.server.chat().status, 401)
        self.assertEqual(self.ask("secret-of-alic").status, 401)
        self.assertEqual(self.server.get("/v1/models").status, 401)
        self.assertEqual(self.server.get("/health").status, 200)
        self.assertEqual(self.ask("secret-of-alice").status, 200)
        self.assertEqual(self.ask("secret-of-eve").status, 200)
        self.assertEqual(self.server.post("/v1/messages", messages_body(), {"x-api-key": "secret-of-bob"}).status, 200)
        # A large body without a key is not read at all.
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as connection:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
            self.assertIn(b" 401 ", connection.recv(4096).split(b"\r\n")[0])
        self.assertNotIn("secret", self.server.log())

    def test_one_tenant_never_sees_what_another_has_cached(self):
        text = "a very particular story about a fox and a crow and some cheese " * 30

        def asked(key, path, body):
            """What the answer says of the cache, and the rows of the prompt that were computed."""
            answer = self.server.post(path, body, {"Authorization": f"Bearer {key}", "x-fathom-receipt": "1"}).json()
            usage, receipt = answer["usage"], answer["fathom"]
            if path.endswith("messages"):
                cached = usage["cache_read_input_tokens"]
            else:
                cached = (usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))["cached_tokens"]
            self.assertEqual(cached, receipt["cached_tokens"])
            return cached, receipt

        for path, body in (("/v1/chat/completions", chat_body(text)), ("/v1/messages", messages_body("M " + text)),
                           ("/v1/responses", responses_body("R " + text))):
            with self.subTest(path):
                cold, first = asked("secret-of-alice", path, body)
                warm, second = asked("secret-of-alice", path, body)
                self.assertEqual((cold, first["encoder_rows"]), (0, first["prompt_tokens"]))
                self.assertGreaterEqual(warm, 128)
                self.assertLess(second["encoder_rows"], first["encoder_rows"])
                # For everybody else nothing of it is there: each row is computed anew.
                for key in ("secret-of-bob", "secret-of-dora"):
                    cached, receipt = asked(key, path, body)
                    self.assertEqual((cached, receipt["replayed_tokens"], receipt["encoder_rows"], receipt["decoder_rows"]),
                                     (0, 0, first["encoder_rows"], first["decoder_rows"]))
                self.assertGreaterEqual(asked("secret-of-bob", path, body)[0], 128)

    def test_keys_that_name_the_same_salt_share_and_others_do_not(self):
        self.file.write_text("secret-of-alice tenant=alice salt=pepper\nsecret-of-bob tenant=bob salt=pepper\nsecret-of-carl tenant=carl salt=ginger\n")
        self.server.process.send_signal(signal.SIGHUP)
        self.assertTrue(self.server.wait_for_log("keys were read again"))
        text = "a story of two houses that share one kitchen and one garden " * 30
        cached = lambda key: self.ask(key, chat_body(text)).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached("secret-of-alice"), 0)
        self.assertGreaterEqual(cached("secret-of-bob"), 128)
        self.assertEqual(cached("secret-of-carl"), 0)

    def test_limits_are_429_with_retry_after(self):
        statuses = [self.ask("secret-of-carl").status for _ in range(3)]
        self.assertEqual(statuses, [200, 200, 429])
        refused = self.ask("secret-of-carl")
        self.assertGreaterEqual(int(refused.headers["Retry-After"]), 1)
        self.assertEqual(refused.json()["error"]["type"], "rate_limit_error")

    def test_sighup_reads_the_keys_again_and_keeps_them_when_they_are_wrong(self):
        self.file.write_text("secret-of-frank\n")
        self.server.process.send_signal(signal.SIGHUP)
        self.assertTrue(self.server.wait_for_log("keys were read again"))
        self.assertEqual(self.ask("secret-of-alice").status, 401)
        self.assertEqual(self.ask("secret-of-frank").status, 200)
        self.file.write_text("short\n")
        self.server.process.send_signal(signal.SIGHUP)
        self.assertTrue(self.server.wait_for_log("old keys stay in use"))
        self.assertEqual(self.ask("secret-of-frank").status, 200)


@unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
class Tls(unittest.TestCase):
    def certificate(self, folder, name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)

    def name_of(self, server):
        context = ssl.create_default_context(cafile=self.folder / "cert.pem")
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=20)
        connection.request("GET", "/health")
        self.assertEqual(connection.getresponse().status, 200)
        subject = connection.sock.getpeercert()["subject"]
        connection.close()
        return subject[0][0][1]

    def test_https_and_a_new_certificate_on_sighup(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fathom-serve-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.certificate(self.folder, "one.example")
        server = Server("--tls-cert", str(self.folder / "cert.pem"), "--tls-key", str(self.folder / "key.pem"))
        self.addCleanup(server.end)
        self.assertTrue(server.url.startswith("https://"))
        self.assertEqual(self.name_of(server), "one.example")
        self.certificate(self.folder, "two.example")
        server.process.send_signal(signal.SIGHUP)
        self.assertTrue(server.wait_for_log("certificate was read again"))
        self.assertEqual(self.name_of(server), "two.example")


class End(unittest.TestCase):
    def long_stream(self, server, tokens):
        """A thread that reads a stream of so many tokens, and where its events go."""
        got = []
        def read():
            body = {"model": MODEL, "prompt": "Count.", "ignore_eos": True, "max_tokens": tokens, "stream": True}
            try:
                got.extend(server.post("/v1/completions", body).events())
            except (http.client.HTTPException, OSError):
                got.append((None, "cut"))
        thread = threading.Thread(target=read)
        thread.start()
        deadline = time.monotonic() + 30
        while server.metric("fathom_server_open_requests") == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        return thread, got

    def test_sigterm_lets_running_answers_end_refuses_new_ones_and_exits_0(self):
        server = Server("--context", "8192", "--drain", "5m")
        thread, got = self.long_stream(server, 800)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(server.wait_for_log("draining"))
        refused = server.chat()
        self.assertEqual(refused.status, 503)
        self.assertGreaterEqual(int(refused.headers["Retry-After"]), 1)
        self.assertEqual(server.get("/ready").status, 503)
        self.assertEqual(server.get("/health").status, 200)
        thread.join(SECONDS)
        self.assertEqual(got[-1][1], "[DONE]")
        self.assertEqual(server.end(0), 0)

    def test_what_is_open_after_the_drain_is_told_and_the_exit_is_still_0(self):
        server = Server("--context", "8192", "--drain", "300ms")
        thread, got = self.long_stream(server, 8000)
        self.assertEqual(server.end(), 0)
        thread.join(SECONDS)
        self.assertIn("error", json.loads(got[-1][1]))

    def test_a_second_signal_ends_at_once_with_130(self):
        server = Server("--context", "8192", "--drain", "60s")
        thread, got = self.long_stream(server, 8000)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(server.wait_for_log("draining"))
        try:
            self.assertEqual(server.end(signal.SIGINT), 130)
        finally:
            thread.join(SECONDS)

    def test_ctrl_c_of_an_idle_server_is_a_drain_too(self):
        self.assertEqual(Server().end(signal.SIGINT), 0)


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps the spans that it is sent."""
    got = []

    def do_POST(self):
        Collector.got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Traces(unittest.TestCase):
    def test_a_request_is_a_span_of_its_clients_trace(self):
        collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        server = Server("--trace-endpoint", f"http://127.0.0.1:{collector.server_port}")
        try:
            trace = "4bf92f3577b34da6a3ce929d0e0e4736"
            answer = server.post("/v1/chat/completions", chat_body(), {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
            self.assertTrue(answer.headers["traceparent"].startswith(f"00-{trace}-"))
            self.assertTrue(server.wait_for_log(f"trace={answer.headers['traceparent']}"))
        finally:
            self.assertEqual(server.end(), 0)  # which sends what waits
            collector.shutdown()
            thread.join()
            collector.server_close()
        self.assertEqual({path for path, _ in Collector.got}, {"/v1/traces"})
        spans = [span for _, body in Collector.got for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
        names = {span["name"]: span for span in spans}
        self.assertEqual(set(names), {"POST /v1/chat/completions", "queue", "prefill", "decode"})
        whole = names["POST /v1/chat/completions"]
        self.assertEqual((whole["traceId"], whole["parentSpanId"]), (trace, "00f067aa0ba902b7"))
        for name in ("queue", "prefill", "decode"):
            self.assertEqual(names[name]["parentSpanId"], whole["spanId"])
            self.assertLessEqual(int(whole["startTimeUnixNano"]), int(names[name]["startTimeUnixNano"]))
            self.assertLessEqual(int(names[name]["endTimeUnixNano"]), int(whole["endTimeUnixNano"]))


class Store(unittest.TestCase):
    def test_a_conversation_goes_on_after_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server("--response-store", folder)
            first = server.post("/v1/responses", responses_body()).json()
            self.assertEqual(server.end(), 0)
            server = Server("--response-store", folder)
            self.addCleanup(server.end)
            second = server.post("/v1/responses", responses_body("And plus 1?", previous_response_id=first["id"])).json()
            self.assertEqual(second["status"], "completed", second)
            self.assertGreater(second["usage"]["input_tokens"], first["usage"]["input_tokens"])
            self.assertEqual(server.get(f"/v1/responses/{first['id']}").json()["id"], first["id"])
            self.assertEqual(server.ask("DELETE", f"/v1/responses/{first['id']}").json()["deleted"], True)
            self.assertEqual(server.post("/v1/responses", responses_body(previous_response_id=first["id"])).status, 400)

    def test_without_a_store_it_is_refused(self):
        server = Server()
        self.addCleanup(server.end)
        self.assertEqual(server.post("/v1/responses", responses_body(previous_response_id="resp_1")).status, 400)


if __name__ == "__main__":
    unittest.main()
