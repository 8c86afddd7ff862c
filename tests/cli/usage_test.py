"""Help, mistakes in the command line, and where options come from (design/cli.md 1)."""
import json
import subprocess
import unittest

from program import COMMANDS, PLANNED, PROGRAM, ProgramTest, environment, run


class Help(ProgramTest):
    def test_help_of_the_program_lists_what_exists_and_nothing_else(self):
        out = self.succeeds("--help").out
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", out)
        for command in PLANNED:
            self.assertNotIn(f"\n  {command} ", out)
        self.assertEqual(run().out, out)
        self.assertEqual(run("-h").out, out)
        self.assertEqual(run("help").out, out)

    def test_help_of_each_command_fits_80_columns_and_has_an_example(self):
        for command in COMMANDS:
            with self.subTest(command):
                ran = self.succeeds(command, "--help")
                self.assertEqual(ran.err, "")
                lines = ran.out.splitlines()
                self.assertTrue(lines[0].startswith(f"fathom {command} - "), lines[0])
                self.assertTrue(lines[2].startswith(f"  fathom {command} "), lines[2])
                self.assertLessEqual(max(map(len, lines)), 80)
                self.assertIn("\nEvery command\n", ran.out)
                self.assertEqual(run("help", command).out, ran.out)
                self.assertEqual(run(command, "--json", "-h").out, ran.out)

    def test_version_names_commit_and_backends(self):
        out = self.succeeds("--version").out
        self.assertRegex(out, r"^fathom \d+\.\d+\.\d+ \(commit [0-9a-f]+\+?|unknown\)\n")
        self.assertIn("backends: cpu reference", out)


class Mistakes(ProgramTest):
    def test_inst_01_an_unknown_option_is_named_within_a_second(self):
        self.fails(2, "serve", "--tool-parser", "deepseek_v4", mentions=["--tool-parser"], within=1)

    def test_inst_01_holds_for_every_command(self):
        for command in COMMANDS:
            with self.subTest(command):
                self.fails(2, command, "--tool-parser", "x", mentions=["--tool-parser", "--model"], within=1)

    def test_the_closest_option_command_and_value_are_suggested(self):
        self.fails(2, "generate", "--temprature", "1", "x", mentions=["did you mean --temperature?"], within=1)
        self.fails(2, "serve", "--port", "8000", mentions=["did you mean --listen?"], within=1)
        self.fails(2, "serve", "--max-model-len=1", mentions=["did you mean --context?"], within=1)
        self.fails(2, "genrate", mentions=["did you mean generate?", "make-checkpoint"], within=1)
        self.fails(2, "generate", "--replay", "compat", "x", mentions=["did you mean compact?", "halo"], within=1)
        self.fails(2, "bench", "decod", mentions=["did you mean decode?"], within=1)

    def test_nothing_is_loaded_before_a_mistake_is_found(self):
        # The model does not exist; the option is what is named.
        self.fails(2, "generate", "--model", "/nonexistent", "--bogus", "x", mentions=["--bogus"])

    def test_commands_of_later_builds_are_refused_clearly(self):
        for command in PLANNED:
            with self.subTest(command):
                self.fails(2, command, mentions=[command, "does not have", "yet"], within=1)
        self.fails(2, "route", "--listen", "127.0.0.1:0", mentions=["does not have the command route"])

    def test_options_of_later_builds_are_refused_rather_than_ignored(self):
        for words in (["--kv-ram", "4GiB"], ["--ranks", "2"], ["--image", "a.png"], ["--kv-disk=d"]):
            with self.subTest(words[0]):
                name = words[0].split("=")[0]
                self.fails(2, "generate", "x", *words, mentions=[name, "does not have", "yet"], within=1)

    def test_places_that_a_backend_does_not_have(self):
        for words, tells in ((["--experts", "ram"], ["--experts ram", "cpu"]), (["--engram", "ram"], ["--engram ram"]),
                             (["--engram", "device"], ["--engram device"]),
                             (["--resident-limit", "1GiB"], ["--experts ram"]),
                             (["--drop-behind"], ["--experts disk"])):
            with self.subTest(words[0]):
                self.fails(2, "generate", "x", "--backend", "cpu", *words, mentions=tells)

    def test_values_are_checked(self):
        for name, value in (("--temperature", "hot"), ("--top-p", "1.5"), ("--max-tokens", "0"), ("--threads", "0"),
                            ("--memory-limit", "12QB"), ("--seed", "-1"), ("--ids", "1,x"), ("--backend", "tpu"),
                            ("--effort", "101"), ("--log-level", "loud"), ("--drafts", "6")):
            with self.subTest(name + " " + value):
                self.fails(2, "generate", "--chat" if name == "--effort" else "--stats", name, value,
                           *([] if name == "--ids" else ["x"]), mentions=[name], within=1)

    def test_a_missing_value_is_named(self):
        self.fails(2, "generate", "x", "--max-tokens", mentions=["no value after --max-tokens"])
        self.fails(2, "generate", "x", "--max-tokens", "--stats", mentions=["no value after --max-tokens"])

    def test_options_that_exclude_each_other(self):
        for words in (["--ids", "1", "x"], ["--prompt-file", "f", "x"], ["x", "y"], ["x", "--system", "s"],
                      ["x", "--tools", "t"], ["x", "--effort", "50"], ["--chat", "--ids", "1"], ["x", "--resume"],
                      ["--input", "a"], ["x", "--output", "a"], ["x", "--greedy", "--temperature", "1"]):
            with self.subTest(" ".join(words)):
                self.fails(2, "generate", *words)
        self.fails(2, "plan", "--gpus", "1xH200", "--hardware", "f")
        self.fails(2, "tokenize", "x", "--count", "--pieces")
        self.fails(2, "doctor", "x", mentions=["unexpected argument"])
        self.fails(2, "bench", mentions=["prefill"])

    def test_name_equals_value(self):
        a = self.succeeds("tokenize", "--count", "a b c")
        self.assertEqual(self.succeeds("--model=", "tokenize", "--count=true", "a b c").out, a.out)
        self.fails(2, "generate", "--temperature=hot", "x", mentions=["--temperature"])

    def test_common_options_may_stand_before_the_command(self):
        self.assertEqual(self.succeeds("--threads", "1", "tokenize", "hi").out, run("tokenize", "hi").out)
        self.fails(2, "--threads", "many", "tokenize", "hi", mentions=["--threads"])
        self.fails(2, "--bogus", "tokenize", "hi", mentions=["--bogus"])

    def test_a_line_break_in_a_value_leaves_the_message_one_line(self):
        self.fails(3, "generate", "--model", "a\nb", "x", mentions=["a b"])

    def test_errors_as_json(self):
        ran = run("generate", "--json", "--bogus")
        self.assertEqual(ran.code, 2)
        error = json.loads(ran.err)["error"]
        self.assertEqual(set(error), {"code", "message", "where", "remedy"})
        self.assertEqual(error["code"], "usage")
        self.assertIn("--bogus", error["message"])
        self.assertEqual(json.loads(run("genrate", env={"FATHOM_JSON": "1"}).err)["error"]["code"], "usage")

    def test_hardware_that_is_not_there_exits_5(self):
        self.fails(5, "generate", "--backend", "cuda", "x", mentions=["cuda"])
        self.fails(5, "generate", "--backend", "ascend", "x", mentions=["ascend"])
        self.fails(5, "doctor", "--backend", "cuda", mentions=["cuda"])

    def test_output_that_cannot_be_written_exits_1(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "inspect"], stdout=full, stderr=subprocess.PIPE, env=environment())
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.decode().startswith("fathom: cannot write"))


class Precedence(ProgramTest):
    def config(self, text):
        path = self.folder() / "fathom.toml"
        path.write_text(text)
        return path

    def value(self, *words, env=None):
        return json.loads(self.succeeds("generate", "--print-config", "--json", *words, env=env).out)["temperature"]

    def test_option_then_environment_then_file_then_default(self):
        path = self.config("[generate]\ntemperature = 0.25\n")
        env = {"FATHOM_TEMPERATURE": "0.5"}
        self.assertEqual(self.value("--config", path, "--temperature", "0.75", env=env), 0.75)
        self.assertEqual(self.value("--config", path, env=env), 0.5)
        self.assertEqual(self.value("--config", path), 0.25)
        self.assertIsNone(self.value())
        self.assertEqual(self.value(env={"FATHOM_CONFIG": str(path)}), 0.25)

    def test_top_level_keys_are_the_common_options_and_the_table_is_stronger(self):
        path = self.config('threads = 1\nlog-level = "info"\n[generate]\nthreads = 2\n')
        resolved = json.loads(self.succeeds("generate", "--config", path, "--print-config", "--json").out)
        self.assertEqual((resolved["threads"], resolved["log-level"]), (2, "info"))
        resolved = json.loads(self.succeeds("tokenize", "--config", path, "--print-config", "--json").out)
        self.assertEqual(resolved["threads"], 1)

    def test_an_unknown_key_is_an_error_that_names_it(self):
        self.fails(2, "generate", "--config", self.config("[generate]\ntemprature = 1\n"), "x",
                   mentions=["temprature", "did you mean temperature?"])
        self.fails(2, "generate", "--config", self.config("temperature = 1\n"), "x", mentions=["temperature"])
        self.fails(2, "generate", "--config", self.config("[genrate]\n"), "x", mentions=["genrate", "generate"])
        # Tables of other commands are checked too, and those of later builds are accepted.
        self.fails(2, "tokenize", "--config", self.config("[chat]\nbogus = 1\n"), "x", mentions=["bogus", "[chat]"])
        self.succeeds("tokenize", "--config", self.config('[serve]\nlisten = "0.0.0.0:8000"\n'), "x")

    def test_wrong_values_name_file_and_key(self):
        path = self.config('[generate]\ntemperature = "hot"\n')
        self.fails(2, "generate", "--config", path, "x", mentions=[str(path), "temperature"])
        self.fails(2, "generate", "x", mentions=["FATHOM_TEMPERATURE"], env={"FATHOM_TEMPERATURE": "hot"})

    def test_a_file_that_is_no_toml_or_not_there_exits_3(self):
        self.fails(3, "generate", "--config", self.config("[generate\n"), "x", mentions=["line 1"])
        self.fails(3, "generate", "--config", "/nonexistent.toml", "x", mentions=["/nonexistent.toml"])

    def test_a_printed_configuration_is_a_configuration(self):
        words = ["--temperature", "0.5", "--stop", "a\"b", "--stop", "c", "--stop-id", "3,4", "--memory-limit", "1GiB"]
        text = self.succeeds("generate", *words, "--print-config").out
        again = self.succeeds("generate", "--config", self.config(text), "--print-config", "--json").json()
        self.assertEqual(again, self.succeeds("generate", *words, "--print-config", "--json").json())
        self.assertEqual(again["memory-limit"], 1 << 30)
        self.assertIn("# option", text)

    def test_inspect_has_a_section_config_and_still_reads_a_file(self):
        self.assertIn("hidden_size", self.succeeds("inspect", "--config").out)
        path = self.config("threads = 1\n")
        self.assertEqual(self.succeeds("inspect", "--config", path, "--print-config", "--json").json()["threads"], 1)
        self.assertEqual(self.succeeds("inspect", f"--config={path}", "--print-config", "--json").json()["threads"], 1)


if __name__ == "__main__":
    unittest.main()
