"""bench prefill|decode|codec and check-golden: rows, files, gates (design/cli.md 4, 6)."""
import csv
import json
import os
import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

from program import ROOT, ProgramTest, run

QUICK = ["--repeat", "1", "--warmup", "0", "--threads", "1"]
SHARED = Path(os.environ.get("FATHOM_SHARED", ROOT.parent / "shared"))


class Bench(ProgramTest):
    def test_a_row_says_what_was_measured(self):
        row = self.succeeds("bench", "prefill", "--lengths", "40", "--cached", "10", "--replay", "off", "--json", *QUICK).json()
        wanted = {"bench": "prefill", "length": 40, "batch": 1, "cached": 10, "drafts": 0, "replay": "off",
                  "backend": "cpu", "threads": 1, "repeat": 1}
        self.assertEqual({k: row[k] for k in wanted}, wanted)
        self.assertAlmostEqual(row["tokens_per_s"], 40 / row["ms"] * 1000, delta=0.01 * row["tokens_per_s"])
        row = self.succeeds("bench", "decode", "--lengths", "4", "--cached", "9", "--batch", "2", "--drafts", "0", "--json",
                            *QUICK).json()
        self.assertAlmostEqual(row["tokens_per_s"], 2 / row["ms"] * 1000, delta=0.01 * row["tokens_per_s"])

    def test_operations_say_where_the_time_went(self):
        words = ["bench", "prefill", "--lengths", "40", "--replay", "off", "--per-operation", *QUICK]
        row = self.succeeds(*words, "--json").json()
        products = [entry for entry in row["operations"] if entry["name"] == "linear"]
        self.assertGreater(sum(entry["calls"] for entry in products), 1)
        self.assertEqual(len({entry["shape"] for entry in products}), len(products))
        self.assertLessEqual(sum(entry["ms"] for entry in row["operations"]), row["ms"])
        for entry in row["operations"]:
            self.assertAlmostEqual(entry["share"], entry["ms"] / row["ms"], places=6)
        # The head: all 40 rows in the last layer, logits of the last one; 2,880 x 256 weights of bf16.
        head = next(entry for entry in products if entry["shape"] == "bf16 2880x256")
        self.assertEqual((head["calls"], head["memory_bytes"], head["flop"]), (1, 2880 * 256 * 2, 2 * 2880 * 256))
        self.assertEqual(row["whole"]["memory_bytes"], sum(entry["memory_bytes"] for entry in row["operations"]))
        self.assertAlmostEqual(row["whole"]["bound_ms"], sum(entry["bound_ms"] for entry in row["operations"]), places=6)
        self.assertGreater(row["peaks"]["memory_gbps"], 0)
        shown = self.succeeds(*words).out
        for text in ("between them", "of bound", "the whole:", "peaks:"):
            self.assertIn(text, shown)

    def test_a_past_may_be_copies_of_its_beginning(self):
        words = ["bench", "decode", "--lengths", "4", "--cached", "600", "--batch", "3", *QUICK]
        row = self.succeeds(*words, "--tokens", "random", "--past", "copied", "--json").json()
        self.assertEqual((row["past"], row["batch"], row["cached"]), ("copied", 3, 600))
        self.fails(2, *words, "--past", "copied", mentions=["--past", "--tokens random"])

    def test_what_has_no_effect_is_refused(self):
        self.fails(2, "bench", "decode", "--tokens", "random", "--drafts", "3", mentions=["--drafts", "--tokens own"])
        self.fails(2, "bench", "prefill", "--launch", "each", mentions=["--launch", "leave it out"])
        self.fails(2, "bench", "prefill", "--tokens", "random", mentions=["--tokens", "leave it out"])
        for words in (["--tokens", "random"], ["--past", "copied"], ["--launch", "each"], ["--per-operation"], ["--cached", "5"]):
            for bench in ("codec", "engine", "kernels"):
                self.fails(2, "bench", bench, *words, mentions=[words[0]])

    def test_lists_make_a_grid(self):
        rows = self.succeeds("bench", "prefill", "--lengths", "8,16", "--batch", "1,2", "--json", *QUICK).lines()
        self.assertEqual([(r["length"], r["batch"]) for r in rows], [(8, 1), (8, 2), (16, 1), (16, 2)])

    def test_the_command_of_a_row_runs_the_same_again(self):
        given = ["--numerics", "deepinfer", "--batch-invariant", "--step-rows", "64", "--lengths", "8", "--replay", "off"]
        row = self.succeeds("bench", "prefill", *given, *QUICK, "--json").lines()[0]
        again = row["command"].split()
        self.assertEqual(again[:2], ["fathom", "bench"])
        for i, word in enumerate(given):
            self.assertIn(word if word.startswith("--") else f"{given[i - 1]} {word}", row["command"])
        twice = self.succeeds(*again[1:], "--warmup", "0", "--json").lines()[0]
        for key in ("length", "batch", "numerics", "batch_invariant", "replay", "backend", "threads", "command"):
            self.assertEqual(twice[key], row[key], key)

    def test_files_and_the_gate(self):
        path = self.folder() / "b.csv"
        words = ["bench", "decode", "--lengths", "8", "--cached", "8", *QUICK]
        self.succeeds(*words, "--out", path)
        rows = list(csv.DictReader(path.read_text().splitlines()))
        self.assertEqual(rows[0]["bench"], "decode")
        for column in ("machine", "commit", "command"):
            self.assertTrue(rows[0][column])
        self.assertIn("tokens/s against", self.succeeds(*words, "--compare", path, "--max-slowdown", "10000%").out)
        # A recorded run that is far faster than any machine: slower than the gate.
        rows[0]["tokens_per_s"] = "1e12"
        path.write_text(",".join(rows[0]) + "\n" + ",".join('"' + v + '"' for v in rows[0].values()) + "\n")
        ran = run(*words, "--compare", path)
        self.assertEqual(ran.code, 1)
        self.assertIn("--max-slowdown", ran.err)
        path.write_text("a,b\n1,2\n")
        ran = run(*words, "--compare", path)
        self.assertEqual(ran.code, 3)

    def test_a_sweep_writes_three_files(self):
        folder = self.folder() / "sweep"
        self.succeeds("bench", "decode", "--sweep", "--lengths", "2", "--cached", "4", "--batch", "1,2", "--out", folder, *QUICK)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["decode.csv", "decode.jsonl", "decode.svg"])
        xml.etree.ElementTree.fromstring((folder / "decode.svg").read_text())
        self.assertEqual(len((folder / "decode.jsonl").read_text().splitlines()), 2)

    def test_the_codec_alone(self):
        words = ["bench", "codec", "--repeat", "1", "--warmup", "0"]
        rows = self.succeeds(*words, "--json").lines()
        self.assertEqual([r["api"] for r in rows], ["chat", "responses", "messages"])
        for row in rows:
            self.assertEqual((row["bench"], row["codec_policy"], row["threads"], row["repeat"]), ("codec", "default", 1, 1))
            request_ms = row["convert_ms"] + row["render_ms"] + row["encode_ms"]
            self.assertAlmostEqual(row["requests_per_s"] * request_ms, 1000, delta=1)
            self.assertGreater(row["output_bytes_per_s"], row["event_bytes"])  # an answer takes less than a second
            self.assertGreater(row["request_bytes"], 30000)
        path = self.folder() / "codec.csv"
        words += ["--api", "messages", "--codec-policy", "strict"]
        self.assertIn("requests/s", self.succeeds(*words, "--out", path).out)
        self.assertIn("against", self.succeeds(*words, "--compare", path, "--max-slowdown", "10000%").out)
        rows = list(csv.DictReader(path.read_text().splitlines()))
        self.assertEqual([(r["api"], r["codec_policy"]) for r in rows], [("messages", "strict")])
        rows[0]["requests_per_s"] = "1e12"
        path.write_text(",".join(rows[0]) + "\n" + ",".join('"' + v + '"' for v in rows[0].values()) + "\n")
        ran = run(*words, "--compare", path)
        self.assertEqual(ran.code, 1)
        self.assertIn("messages, requests_per_s", ran.err)
        self.fails(2, "bench", "codec", "--lengths", "5", mentions=["--lengths", "prefill"])
        self.fails(2, "bench", "prefill", "--api", "chat", mentions=["--api", "codec"])
        self.fails(2, "bench", "codec", "--api", "soap", mentions=["responses"])

    def test_usage(self):
        self.fails(2, "bench", "prefill", "--sweep", mentions=["--out"])
        self.fails(2, "bench", "decode", "--cached", "0", mentions=["--cached"])
        self.fails(2, "bench", "decode", "--max-slowdown", "x", mentions=["--max-slowdown"])
        self.fails(2, "bench", "prefill", "--lengths", "100", "--context", "50", mentions=["100", "50"])
        self.fails(4, "bench", "prefill", "--lengths", "100", "--memory-limit", "1kB", mentions=["--memory-limit"])
        self.fails(2, "bench", "prefill", "--lengths", "9000", mentions=["9,000", "8,192"])


class Kernels(ProgramTest):
    def test_a_row_says_what_bounds_it_and_a_peer_takes_turns(self):
        peer = self.folder() / "peer.py"
        peer.write_text("import json, sys\n"
                        "print(json.dumps({'peers': ['torch'], 'version': 'torch 0'}), flush=True)\n"
                        "for line in sys.stdin:\n"
                        "    asked = json.loads(line)\n"
                        "    us = {'torch': asked['rows'] * asked['n'] * asked['k']} if asked['op'] == 'linear' else {}\n"
                        "    assert asked['op'] == 'linear' or asked['experts'] > asked['chosen'] > 0\n"
                        "    print(json.dumps({'us': us}), flush=True)\n")
        path = self.folder() / "kernels.csv"
        rows = self.succeeds("bench", "kernels", "--kernel", "linear", "--kernel", "rms_norm", "--kernel", "grouped_linear", "--filter", "miniature", "--rows", "1,3",
                             "--peers", f"{sys.executable} {peer}", "--out", path, "--json", *QUICK).lines()
        peaks = [r for r in rows if r["op"].startswith("peak ")]
        self.assertEqual([r["op"][5:] for r in peaks], ["memory", "memory, large pages", "l3", "l2", "l1", "bf16", "int8", "f32"])
        self.assertTrue(all(r["share"] == 1 and r["gbps"] + r["gflops"] > 0 for r in peaks))
        rows = [r for r in rows if not r["op"].startswith("peak ")]
        self.assertEqual({r["op"] for r in rows}, {"linear", "rms_norm", "grouped_linear"})
        self.assertEqual({r["rows"] for r in rows}, {1, 3})
        for row in rows:
            self.assertGreater(row["us"], 0)
            self.assertIn(row["bound"], ("memory", "cache", "compute"))
            self.assertTrue(0 < row["share"] < 2, row)
            n, _, k = row["shape"].partition("x")
            if row["op"] == "linear" and "/" not in k:
                self.assertAlmostEqual(row["gflops"] * row["us"] * 1e3, 2 * row["rows"] * int(n) * int(k), delta=1)
                self.assertAlmostEqual(row["torch_ratio"], row["rows"] * int(n) * int(k) / row["us"], places=3)
            else:
                self.assertEqual(row["torch_us"], 0)
        self.assertEqual(len(list(csv.DictReader(path.read_text().splitlines()))), len(rows) + len(peaks))

    def test_a_peer_that_answers_nonsense_is_named(self):
        peer = self.folder() / "peer.py"
        peer.write_text("import sys\nprint('{\"peers\": [\"torch\"], \"version\": \"0\"}', flush=True)\n"
                        "for line in sys.stdin:\n    print('{\"us\": {\"torch\": -1}}', flush=True)\n")
        self.fails(1, "bench", "kernels", "--kernel", "linear", "--filter", "miniature", "--rows", "1", *QUICK,
                   "--peers", f"{sys.executable} {peer}", mentions=["--peers", "no time of torch"])

    def test_mistakes_are_named(self):
        self.fails(2, "bench", "kernels", "--lengths", "8", mentions=["--lengths", "--kernel"])
        self.fails(2, "bench", "kernels", "--kernel", "linaer", mentions=["linaer", "linear"])
        self.fails(2, "bench", "kernels", "--filter", "no such case", mentions=["--filter"])
        self.fails(2, "bench", "decode", "--kernel", "linear", mentions=["--kernel", "bench kernels"])
        self.fails(1, "bench", "kernels", "--rows", "1", "--peers", "true", mentions=["--peers true", "ended"])


@unittest.skipUnless((SHARED / "golden/cases.json").exists(), "FATHOM_SHARED does not lead to golden data")
class CheckGolden(ProgramTest):
    def test_a_case_passes_and_shows_error_place_and_tolerance(self):
        ran = self.succeeds("check-golden", "--golden", SHARED / "golden", "--case", "full_f32_noquant")
        for text in ("largest error", "tolerance", "logits", "0 fail"):
            self.assertIn(text, ran.out)
        rows = self.succeeds("check-golden", "--golden", SHARED / "golden", "--case", "quant", "--json").lines()
        self.assertEqual({r["verdict"] for r in rows}, {"pass"})
        self.succeeds("check-golden", "--golden", SHARED / "golden", "--case", "full_f32", "--batch-invariant")

    def test_mistakes(self):
        self.fails(2, "check-golden", mentions=["--golden"])
        self.fails(2, "check-golden", "--golden", SHARED / "golden", "--case", "nonsense", mentions=["nonsense"])
        self.fails(3, "check-golden", "--golden", "/nonexistent", mentions=["/nonexistent"])


if __name__ == "__main__":
    unittest.main()
