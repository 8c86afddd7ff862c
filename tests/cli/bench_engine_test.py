"""bench engine: a load of requests, simulated and on the miniature (design/cli.md 4; docs/guides/simulator.md)."""
import csv
import json
import unittest
import xml.etree.ElementTree

from program import ProgramTest, run

FEW = ["--requests", "40", "--prompt-tokens", "300", "--output-tokens", "30"]
SIMULATE = ["bench", "engine", "--simulate", *FEW]
REAL = ["bench", "engine", "--requests", "6", "--prompt-tokens", "30", "--output-tokens", "5", "--rate", "0", "--threads", "1"]


class Simulated(ProgramTest):
    def test_all_policies_run_the_same_load(self):
        rows = self.succeeds(*SIMULATE, "--json").lines()
        self.assertEqual([r["policy"] for r in rows], ["none", "fixed", "scheduled", "guarded"])
        for row in rows:
            self.assertEqual((row["bench"], row["trace"], row["rate"]), ("simulate", "poisson", 10))
            self.assertEqual((row["hardware"], row["hardware_from"], row["sequences"]), ("8xH200", "bound", 2048))
            self.assertEqual((row["answers"], row["finished"], row["rejected"]), (40, 40, 0))
            self.assertEqual(row["output_tokens"], rows[0]["output_tokens"])
            self.assertAlmostEqual(row["tokens_per_s"] * row["seconds"], row["output_tokens"], delta=1)
            self.assertLessEqual(row["first_token_p50_s"], row["first_token_p99_s"])
        self.assertEqual(rows[0]["verified_per_round"], 0)
        self.assertGreater(rows[1]["tokens_per_round"], 2.5)

    def test_the_same_command_gives_the_same_figures(self):
        words = [*SIMULATE, "--arrivals", "tenants", "--policy", "guarded", "--json"]
        first, again = self.succeeds(*words).json(), self.succeeds(*words).json()
        self.assertEqual(first, again)
        self.assertEqual({t["tenant"] for t in first["tenants"]}, {"chat", "agents", "batch"})
        self.assertNotEqual(self.succeeds(*words, "--seed", "2").json()["seconds"], first["seconds"])

    def test_one_policy_has_its_percentiles_and_agents_find_their_prefixes(self):
        words = [*SIMULATE, "--arrivals", "agent", "--policy", "scheduled"]
        out = self.succeeds(*words).out
        for text in ("DeepSeek V4.1 Flash on 8xH200, simulated; times are bounds", "waiting in the queue", "p99", "found",
                     "accepted by position", "preemptions"):
            self.assertIn(text, out)
        found = self.succeeds(*words, "--json").json()["hit_rate"]
        self.assertGreater(found, 0.5)
        self.assertEqual(self.succeeds(*words, "--json", "--no-prefix-cache").json()["hit_rate"], 0)

    def test_a_sweep_writes_a_table_and_a_picture(self):
        folder = self.folder() / "sweep"
        self.succeeds(*SIMULATE, "--sweep", "--rate", "20", "--out", folder)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["simulator.csv", "simulator.json", "simulator.svg"])
        rows = list(csv.DictReader((folder / "simulator.csv").read_text().splitlines()))
        self.assertEqual(len(rows), 7 * 4)
        self.assertEqual(sorted({float(r["rate"]) for r in rows}), [2.5, 5, 10, 20, 40, 80, 160])
        self.assertEqual(len(json.loads((folder / "simulator.json").read_text())), 28)
        picture = xml.etree.ElementTree.fromstring((folder / "simulator.svg").read_text())
        self.assertEqual(len([e for e in picture if e.tag.endswith("polyline")]), 4)

    def test_a_recorded_trace(self):
        path = self.folder() / "t.jsonl"
        path.write_text('{"arrival": 0, "prompt_tokens": 1000, "output_tokens": 200, "seed": 1, "output_seed": 2, "session": "s"}\n'
                        '{"arrival": 0, "prompt_tokens": 1300, "output_tokens": 10, "prefix": [[1, 1000], [2, 200]],'
                        ' "session": "s", "pause_seconds": 1}\n')
        row = self.succeeds("bench", "engine", "--simulate", "--trace", path, "--policy", "none", "--json").json()
        self.assertEqual((row["finished"], row["cached_tokens"], row["trace"]), (2, 1152, "t.jsonl"))
        path.write_text('{"arrival": 0, "prompt_tokens": 10, "output_tokens": 5}\n{"arrival": 0, "prompt_tokens": 10}\n')
        self.fails(3, "bench", "engine", "--simulate", "--trace", path, mentions=["line 2", "output_tokens"])
        self.fails(3, "bench", "engine", "--simulate", "--trace", self.folder() / "none.jsonl", mentions=["none.jsonl"])

    def test_other_machines(self):
        path = self.folder() / "box.json"
        path.write_text('{"name": "a box", "weights": [[1, 10], [100, 20]], "overlaps": false, "padded_to": 0, "sequences": 4}')
        row = self.succeeds(*SIMULATE, "--hardware", path, "--policy", "fixed", "--json").json()
        self.assertEqual((row["hardware"], row["hardware_from"], row["sequences"]), ("a box", "measured", 4))
        row = self.succeeds(*SIMULATE, "--hardware", "16xH100", "--policy", "fixed", "--json").json()
        self.assertEqual(row["hardware"], "16xH100")
        path.write_text("{}")
        self.fails(3, *SIMULATE, "--hardware", path, mentions=["weights", "box.json"])
        self.fails(2, *SIMULATE, "--hardware", "8xH2O0", mentions=["--hardware", "H200"])
        self.fails(4, *SIMULATE, "--hardware", "1xH200", mentions=["no room"])

    def test_mistakes_are_told(self):
        self.fails(2, *SIMULATE, "--policy", "best", mentions=["--policy"])
        self.fails(2, *SIMULATE, "--acceptance", "9", mentions=["--acceptance", "1 to 6"])
        self.fails(2, *SIMULATE, "--acceptance", "0.5,x", mentions=["--acceptance"])
        self.fails(2, *SIMULATE, "--sweep", mentions=["--out"])
        self.fails(2, *SIMULATE, "--trace", "x.jsonl", mentions=["--requests"])
        self.fails(2, *SIMULATE, "--batch", "3", mentions=["--batch"])
        self.fails(2, *SIMULATE, "--drafts", "7", mentions=["--drafts"])
        self.fails(2, "bench", "decode", "--rate", "3", mentions=["--rate", "bench engine"])
        self.fails(2, "bench", "engine", "--policy", "fixed", mentions=["--policy", "--simulate"])


class Recorded(ProgramTest):
    def test_a_record_into_a_folder_that_is_not_there(self):
        self.fails(3, *REAL, "--record", self.folder() / "nowhere" / "record.jsonl", mentions=["--record", "nowhere"])

    def test_a_record_of_the_engine_replays_to_the_same_decisions(self):
        record = self.folder() / "record.jsonl"
        self.succeeds(*REAL, "--record", record)
        self.assertIn("6 requests: every decision is the same", self.succeeds("bench", "engine", "--replay-record", record).out)
        replayed = self.succeeds("bench", "engine", "--replay-record", record, "--json").json()
        self.assertTrue(replayed["equal"])
        lines = record.read_text().splitlines()
        changed = [line.replace('"step_rows":2048', '"step_rows":7') for line in lines]
        self.assertNotEqual(changed, lines)
        record.write_text("\n".join(changed) + "\n")
        done = run("bench", "engine", "--replay-record", record)
        self.assertEqual(done.code, 1)
        self.assertIn("step", done.out)


class Real(ProgramTest):
    def test_the_miniature_under_a_load(self):
        row = self.succeeds(*REAL, "--json").json()
        self.assertEqual((row["bench"], row["backend"], row["threads"]), ("engine", "cpu", 1))
        self.assertEqual((row["answers"], row["finished"]), (6, 6))
        self.assertGreater(row["tokens_per_s"], 0)
        self.assertGreaterEqual(row["first_token_p50_s"], row["queue_p50_s"])
        out = self.succeeds(*REAL).out
        self.assertIn("all at once", out)
        self.assertIn("first token", out)

    def test_a_session_finds_its_own_answers(self):
        path = self.folder() / "t.jsonl"
        path.write_text('{"arrival": 0, "prompt_tokens": 300, "output_tokens": 100, "seed": 1, "output_seed": 2, "session": "s"}\n'
                        '{"arrival": 0, "prompt_tokens": 420, "output_tokens": 5, "prefix": [[1, 300], [2, 100]],'
                        ' "session": "s", "pause_seconds": 0}\n'
                        '{"arrival": 0, "prompt_tokens": 9000000, "output_tokens": 5}\n')
        row = self.succeeds("bench", "engine", "--trace", path, "--threads", "1", "--json").json()
        self.assertEqual((row["finished"], row["rejected"]), (2, 1))
        self.assertEqual(row["cached_tokens"], 384)  # 3 blocks of the 399 tokens that were computed


if __name__ == "__main__":
    unittest.main()
