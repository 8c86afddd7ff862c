"""bench serve: a load on an endpoint (design/cli.md 4; docs/guides/serving.md 6). The endpoints: `fathom serve` with the
miniature, and one that breaks its streams."""
import csv
import http.server
import json
import socket
import sys
import threading
import unittest
import xml.etree.ElementTree
from pathlib import Path

from program import ProgramTest, run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from running_server import Server  # noqa: E402

FEW = ["--requests", "6", "--prompt-tokens", "40", "--output-tokens", "8"]


class Broken(http.server.BaseHTTPRequestHandler):
    """Every second answer ends with an error in its stream."""
    count = 0

    def do_GET(self):
        self.answer("application/json", json.dumps({"data": [{"id": "m"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = 'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
        if body["max_tokens"] > 1:  # the two first requests ask for one
            Broken.count += 1
        if body["max_tokens"] > 1 and Broken.count % 2 == 0:
            text += 'data: {"error":{"message":"the engine failed","type":"server_error"}}\n\n'
        self.answer("text/event-stream", text + "data: [DONE]\n\n")

    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class OnAServer(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--threads", "1")
        cls.words = ["bench", "serve", "--endpoint", cls.server.url]

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def test_a_closed_loop_has_its_table_and_nothing_on_stderr(self):
        ran = self.succeeds(*self.words, *FEW, "--concurrency", "2")
        for text in ("DeepSeek-V4.1-Flash at " + self.server.url, "back to back, 2 streams", "first token", "between events",
                     "p99", "found in the cache", "at most 2 at once"):
            self.assertIn(text, ran.out)
        self.assertEqual(ran.err, "")

    def test_an_open_loop_as_json_and_csv(self):
        path = self.folder() / "rows.csv"
        row = self.succeeds(*self.words, *FEW, "--rate", "20", "--seed", "5", "--json", "--out", path).json()
        self.assertEqual((row["bench"], row["trace"], row["rate"], row["answers"], row["finished"], row["failed"]),
                         ("serve", "poisson", 20, 6, 6, 0))
        self.assertGreater(row["output_tokens"], 0)
        self.assertLessEqual(row["first_token_p50_s"], row["first_token_p99_s"])
        self.assertLessEqual(row["first_token_max_s"], row["total_max_s"])
        self.assertGreater(row["prompt_tokens"], 6 * 10)
        (line,) = csv.DictReader(path.read_text().splitlines())
        self.assertEqual(set(line), set(row))
        self.assertEqual(line["command"], row["command"])

    def test_a_trace_and_a_file_of_prompts(self):
        folder = self.folder()
        (folder / "t.jsonl").write_text(
            '{"arrival": 0, "prompt_tokens": 30, "output_tokens": 5, "seed": 1, "output_seed": 2, "session": "s"}\n'
            '{"arrival": 0, "prompt_tokens": 60, "output_tokens": 5, "prefix": [[1, 30], [2, 5]], "session": "s", "pause_seconds": 0.2}\n')
        row = self.succeeds(*self.words, "--trace", folder / "t.jsonl", "--json").json()
        self.assertEqual((row["trace"], row["finished"]), ("t.jsonl", 2))
        self.assertGreaterEqual(row["seconds"], 0.2)
        row = self.succeeds(*self.words, "--trace", folder / "t.jsonl", "--rate", "50", "--json").json()
        self.assertEqual((row["trace"], row["rate"], row["finished"]), ("t.jsonl", 50, 2))
        (folder / "p.txt").write_text("What is 37 + 45?\nWhat is 2 + 2?\n")
        row = self.succeeds(*self.words, "--prompts", folder / "p.txt", "--json", "--body", '{"thinking":{"type":"disabled"}}').json()
        self.assertEqual(row["finished"], 2)

    def test_a_comparison_fails_when_it_was_faster_before(self):
        path = self.folder() / "rows.csv"
        words = [*self.words, *FEW, "--concurrency", "2"]
        row = self.succeeds(*words, "--json", "--out", path).json()
        # Whatever the machine does meanwhile: a hundred times slower than this it is not.
        self.assertIn("tokens/s", self.succeeds(*words, "--compare", path, "--max-slowdown", "10000%").out)
        path.write_text(path.read_text().replace(repr(row["tokens_per_s"]), "1e9"))
        ran = run(*words, "--compare", path, "--max-slowdown", "10000%")
        self.assertEqual(ran.code, 1, ran.out + ran.err)
        self.assertIn("1 of 3 figures are slower than 10000%", ran.err)
        self.fails(2, *words, "--max-slowdown", "much", mentions=["5%"])

    def test_completions_of_exact_length(self):
        row = self.succeeds(*self.words, "--api", "completions", "--requests", "3", "--prompt-tokens", "40", "--json", "--body",
                            '{"ignore_eos":true,"max_tokens":11}').json()
        self.assertEqual(row["output_tokens"], 33)

    def test_a_sweep_writes_a_table_and_a_picture(self):
        folder = self.folder() / "sweep"
        self.succeeds(*self.words, *FEW, "--concurrency", "4", "--sweep", "--out", folder)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["serve.csv", "serve.jsonl", "serve.svg"])
        rows = list(csv.DictReader((folder / "serve.csv").read_text().splitlines()))
        self.assertEqual([r["concurrency"] for r in rows], ["1", "2", "4"])
        picture = xml.etree.ElementTree.fromstring((folder / "serve.svg").read_text())
        self.assertEqual(len([e for e in picture if e.tag.endswith("polyline")]), 1)

    def test_what_the_endpoint_refuses_at_once_is_a_bad_address(self):
        self.fails(3, *self.words, "--model-name", "nobody", mentions=["first request", "nobody", "--model-name"])

    def test_mistakes_are_named(self):
        for words, mentions in ((["bench", "serve"], ["--endpoint URL"]), (["bench", "serve", "--endpoint", "here"], ["http://"]),
                                ([*self.words, "--simulate"], ["--simulate"]), ([*self.words, "--lengths", "5"], ["--lengths"]),
                                ([*self.words, "--api", "messages"], ["chat or completions"]),
                                ([*self.words, "--context", "5"], ["--context", "engine of its own"]),
                                ([*self.words, "--drafts", "3"], ["--drafts", "engine of its own"]),
                                ([*self.words, "--no-prefix-cache"], ["--no-prefix-cache", "engine of its own"]),
                                ([*self.words, "--codec-policy", "strict"], ["--codec-policy"]),
                                ([*self.words, "--record", "x"], ["--record"]),
                                ([*self.words, "--sweep"], ["--out DIR"]), ([*self.words, "--body", "[]"], ["--body"]),
                                ([*self.words, "--trace", "x", "--requests", "3"], ["--requests"]),
                                ([*self.words, "--trace", "x", "--sweep", "--out", "y"], ["--sweep"]),
                                (["bench", "decode", "--concurrency", "3"], ["fathom bench serve"]),
                                (["bench", "codec", "--api", "completions"], ["chat, responses or messages"])):
            with self.subTest(words):
                self.fails(2, *words, mentions=mentions, within=1)
        self.fails(3, *self.words, "--prompts", "/nowhere", mentions=["/nowhere"])


class Elsewhere(ProgramTest):
    def test_nobody_there_is_one_clear_line(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.fails(3, "bench", "serve", "--endpoint", f"http://127.0.0.1:{closed.getsockname()[1]}",
                       mentions=["connect", "/v1/models", "--endpoint"])

    def test_the_key_is_sent(self):
        keys = self.folder() / "keys"
        keys.write_text("secret-of-bench\n")
        server = Server("--threads", "1", "--api-key-file", str(keys))
        self.addCleanup(server.end)
        words = ["bench", "serve", "--endpoint", server.url, *FEW, "--json"]
        self.fails(3, *words[:-1], mentions=["FATHOM_API_KEY"])
        ran = run(*words, env={"FATHOM_API_KEY": "secret-of-bench"})
        self.assertEqual((ran.code, ran.json()["finished"]), (0, 6), ran.err)
        self.assertNotIn("secret", ran.out)

    def test_broken_streams_are_counted_and_the_exit_code_says_so(self):
        endpoint = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        self.addCleanup(endpoint.server_close)
        self.addCleanup(endpoint.shutdown)
        ran = run("bench", "serve", "--endpoint", f"http://127.0.0.1:{endpoint.server_port}", *FEW)
        self.assertEqual(ran.code, 1, ran.err)
        self.assertIn("3 x error in the stream: server_error: the engine failed", ran.out)
        self.assertEqual(ran.err.count("\n"), 1)
        self.assertIn("3 of 6 requests failed", ran.err)


if __name__ == "__main__":
    unittest.main()
