"""--model synthetic:PRESET: a checkpoint in memory that answers as the folder of make-checkpoint does (design/cli.md 1)."""
import unittest

from program import ProgramTest, run


class Synthetic(ProgramTest):
    def test_it_answers_as_the_folder_of_the_same_preset_and_seed(self):
        folder = self.folder()
        ask = ["generate", "--ids", "0,5,6,7", "--greedy", "--max-tokens", "8", "--ignore-eos", "--json"]
        for preset in ("tiny", "mini-random"):
            for seed in (0, 5):
                with self.subTest(f"{preset} {seed}"):
                    out = folder / f"{preset}{seed}"
                    self.succeeds("make-checkpoint", "--preset", preset, "--seed", seed, "--out", out)
                    of_folder = self.succeeds(*ask, "--model", out).json()
                    in_memory = self.succeeds(*ask, "--model", f"synthetic:{preset},seed={seed}").json()
                    self.assertEqual(len(in_memory["token_ids"]), 8)
                    self.assertEqual(in_memory["token_ids"], of_folder["token_ids"])
                    self.assertEqual(run("inspect", "--model", f"synthetic:{preset},seed={seed}", "--checksum").out,
                                     run("inspect", "--model", out, "--checksum").out)
        # No seed is seed 0, as with make-checkpoint.
        self.assertEqual(run(*ask, "--model", "synthetic:tiny").json()["token_ids"],
                         run(*ask, "--model", folder / "tiny0").json()["token_ids"])

    def test_every_command_that_takes_a_model_takes_it(self):
        self.assertIn("no problems found", self.succeeds("inspect", "--model", "synthetic:tiny").out)
        self.assertIn("synthetic:tiny on", self.succeeds("plan", "--model", "synthetic:tiny").out)
        self.assertIn("made in memory", self.succeeds("doctor", "--model", "synthetic:tiny").out)
        for what in ("prefill", "decode"):
            ran = self.succeeds("bench", what, "--model", "synthetic:tiny", "--lengths", "32", "--repeat", "1",
                                "--warmup", "0")
            self.assertIn("synthetic:tiny", ran.out)
        self.succeeds("chat", "--model", "synthetic:mini-random", stdin="")
        self.succeeds("generate", "--model", "synthetic:mini-random", "--max-tokens", "2", "--chat", "hi")
        self.succeeds("tokenize", "--model", "synthetic:mini-random", "hi")
        path = self.folder() / "ask.jsonl"
        path.write_text('{"id": 1, "token_ids": [0, 5], "max_tokens": 2}\n')
        self.succeeds("generate", "--model", "synthetic:tiny", "--input", path, "--output", path.with_name("answers"))
        self.succeeds("inspect", "--plan", env={"FATHOM_MODEL": "synthetic:tiny"})

    def test_commands_that_need_text_say_that_there_is_no_tokenizer(self):
        self.fails(3, "generate", "--model", "synthetic:tiny", "hi", mentions=["tokenizer", "--ids"])
        self.fails(3, "chat", "--model", "synthetic:tiny", mentions=["tokenizer", "--ids"])
        self.fails(3, "tokenize", "--model", "synthetic:tiny", "hi", mentions=["no tokenizer", "--tokenizer"])

    def test_what_cannot_fit_is_refused_at_once_with_both_figures(self):
        for words in (["generate", "--ids", "0"], ["bench", "decode"], ["inspect", "--checksum"]):
            with self.subTest(words[0]):
                self.fails(4, *words, "--model", "synthetic:flash-sparse", within=5,
                           mentions=["510,286,023,000 bytes", "available", "flash-slice", "fathom plan"])
        # What looks at headers only needs no memory for the weights.
        self.assertIn("96,085", self.succeeds("inspect", "--model", "synthetic:flash-sparse").out)
        self.succeeds("plan", "--model", "synthetic:flash-sparse", "--gpus", "8xH200", "--context", "8192")
        tree = self.succeeds("doctor", "--model", "synthetic:flash-sparse", "--json").json()
        self.assertEqual(tree["weight_bytes"], 510_286_023_000)

    def test_a_part_of_a_model_is_refused_before_it_is_made(self):
        self.fails(3, "generate", "--ids", "0", "--model", "synthetic:flash-rank,rank=3,ep=8", within=5,
                   mentions=["rank 3 of 8", "flash-slice", "fathom bench"])
        self.assertIn("no problems", self.succeeds("inspect", "--model", "synthetic:flash-rank", "--problems").out)

    def test_keys_are_the_options_of_make_checkpoint(self):
        layers = "synthetic:flash-slice,layers=2+3,experts=6,engram-vocab=100"
        tree = self.succeeds("inspect", "--model", layers, "--json").json()
        self.assertEqual((tree["derived"]["encoder_layers"], tree["derived"]["decoder_layers"]), (2, 3))
        self.assertEqual({row["experts"] for row in tree["plan"]}, {6})

    def test_mistakes_are_named_before_anything_is_made(self):
        for model, mentions in (
                ("synthetic:", ["no preset named", "flash-slice"]),
                ("synthetic:tinny", ["did you mean tiny?"]),
                ("synthetic:tiny,layers=4+4", ['no key "layers"', "use seed"]),
                ("synthetic:flash-slice,expert=8", ["did you mean experts?"]),
                ("synthetic:flash-slice,layers=9", ["4+8"]),
                ("synthetic:flash-slice,layers=1+1", ["2 to 128"]),
                ("synthetic:flash-slice,experts=1000", ["1 to 384"]),
                ("synthetic:flash-rank,ep=7", ["divisor of 384"]),
                ("synthetic:tiny,seed", ["no value after seed"]),
                ("synthetic:tiny,seed=x", ['"x"']),
                ("synthetic:tiny,seed=1,seed=2", ["twice"])):
            for words in (["generate", "--ids", "0"], ["plan"], ["inspect"]):
                with self.subTest(model + " " + words[0]):
                    self.fails(2, *words, "--model", model, mentions=[f"--model {model}", *mentions], within=2)


if __name__ == "__main__":
    unittest.main()
