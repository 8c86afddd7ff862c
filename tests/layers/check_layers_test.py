"""scripts/check-layers refuses what docs/architecture.md section 2 forbids: each case is a small made-up tree.

Run: python3 -m unittest tests/layers/check_layers_test.py
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check-layers"
GOOD = {
    "fathom/CMakeLists.txt": "add_subdirectory(base)\n",
    "fathom/base/CMakeLists.txt": "fathom_room(base LINKS simdjson::simdjson Threads::Threads)\n",
    "fathom/base/result.h": "#pragma once\n#include <string>\n#include <sys/stat.h>\n",
    "fathom/base/json.cpp": "#include <simdjson.h>\n#include \"fathom/base/result.h\"\n",
    "fathom/tensor/CMakeLists.txt": "fathom_room(tensor LINKS\n  fathom_base)\n",
    "fathom/tensor/view.h": "#pragma once\n#include \"fathom/base/result.h\"\n",
    "fathom/tensor/view_test.cpp": "#include <gtest/gtest.h>\n#include \"fathom/tensor/view.h\"\n",
    "fathom/backend/cpu/rows.cpp": "#include <immintrin.h>\n#if defined(__x86_64__)\n#endif\n",
}


class CheckLayers(unittest.TestCase):
    def run_on(self, files, layers=None):
        """Exit code and output of the script on the good tree with `files` added or replaced."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            table = (ROOT / "scripts" / "layers.txt").read_text() if layers is None else layers
            for name, text in {**GOOD, **files, "scripts/layers.txt": table}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, str(SCRIPT), "--root", folder], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

    def refuses(self, files, *words, layers=None):
        code, output = self.run_on(files, layers)
        self.assertEqual(code, 1, output)
        self.assertEqual(output.count("\n"), 2, f"one finding and the closing line, not:\n{output}")
        for word in words:
            self.assertIn(word, output)

    def test_a_good_tree_passes_without_a_word(self):
        self.assertEqual(self.run_on({}), (0, ""))

    def test_this_checkouts_table_is_the_one_of_the_architecture_page(self):
        rows = {}
        page = (ROOT / "docs" / "architecture.md").read_text()
        section = page.split("| room | may include")[1].split("\n\n")[0]
        for line in section.splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if len(cells) == 2:
                allowed = {"*"} if cells[1] == "all" else set(cells[1].replace("-", "").replace(",", " ").split())
                rows.update({room.strip(): allowed for room in cells[0].split(",")})
        table = {}
        for line in (ROOT / "scripts" / "layers.txt").read_text().splitlines():
            if line.startswith("room "):
                room, _, allowed = line[5:].partition(":")
                table[room] = set(allowed.split())
        self.assertEqual(rows, table)

    def test_an_include_against_the_arrows(self):
        self.refuses({"fathom/base/up.cpp": '#include <string>\n#include "fathom/tensor/view.h"\n'},
                     "fathom/base/up.cpp:2: base may not include tensor")

    def test_an_include_across_the_wings(self):
        self.refuses({"fathom/tokenizer/bpe.cpp": '#include "fathom/tensor/view.h"\n'},
                     "fathom/tokenizer/bpe.cpp:1: tokenizer may not include tensor", "may include base")

    def test_a_test_is_bound_by_its_rooms_arrows_too(self):
        self.refuses({"fathom/base/up_test.cpp": '#include "fathom/tensor/view.h"\n'}, "up_test.cpp:1")

    def test_a_link_against_the_arrows(self):
        self.refuses({"fathom/base/CMakeLists.txt": "fathom_room(base LINKS\n  fathom_tensor)\n"},
                     "fathom/base/CMakeLists.txt:2: base may not link tensor")

    def test_a_foreign_library_linked_in_another_room(self):
        self.refuses({"fathom/tensor/CMakeLists.txt": "fathom_room(tensor LINKS fathom_base fmt::fmt)\n"},
                     "fathom/tensor/CMakeLists.txt:1: tensor may not link fmt::fmt", "base only")

    def test_a_room_with_another_name_than_its_folder(self):
        self.refuses({"fathom/tensor/CMakeLists.txt": "fathom_room(tensors LINKS fathom_base)\n"}, "fathom_room(tensors)")

    def test_foreign_headers_outside_their_room(self):
        for header in ("simdjson.h", "fmt/format.h", "cuda_runtime.h", "nccl.h", "immintrin.h", "boost/asio.hpp",
                       "CLI/CLI.hpp", "xgrammar/xgrammar.h", "liburing.h", "png.h", "openssl/ssl.h"):
            with self.subTest(header):
                self.refuses({"fathom/tensor/bad.cpp": f"#include <{header}>\n"},
                             f"fathom/tensor/bad.cpp:1: <{header}> stands in")

    def test_a_test_library_in_the_program(self):
        self.refuses({"fathom/tensor/bad.cpp": "#include <nlohmann/json.hpp>\n"}, "stands in tests only")

    def test_a_header_of_tests_in_the_program(self):
        checks = {"fathom/tensor/near.h": "#pragma once\n#include <gtest/gtest.h>\n",
                  "fathom/tensor/nearer.h": '#pragma once\n#include "fathom/tensor/near.h"\n',
                  "fathom/tensor/near_test.cpp": '#include "fathom/tensor/nearer.h"\n'}
        self.assertEqual(self.run_on(checks), (0, ""))
        self.refuses({**checks, "fathom/tensor/bad.cpp": '#include "fathom/tensor/nearer.h"\n'},
                     "fathom/tensor/bad.cpp:1: fathom/tensor/near.h includes a test library")

    def test_a_library_that_the_table_does_not_know(self):
        self.refuses({"fathom/base/bad.cpp": "#include <absl/strings/str_cat.h>\n"}, "unknown library header")

    def test_an_include_relative_to_its_file(self):
        self.refuses({"fathom/base/bad.cpp": '#include "result.h"\n'}, 'write "fathom/base/result.h"')

    def test_a_header_that_does_not_exist(self):
        self.refuses({"fathom/base/bad.cpp": '#include "fathom/base/nothing.h"\n'}, "does not exist")

    def test_headers_in_a_circle(self):
        self.refuses({"fathom/base/a.h": '#pragma once\n#include "fathom/base/b.h"\n',
                      "fathom/base/b.h": '#pragma once\n#include "fathom/base/a.h"\n'},
                     "in a circle: fathom/base/a.h -> fathom/base/b.h -> fathom/base/a.h")

    def test_rooms_in_a_circle(self):
        table = (ROOT / "scripts" / "layers.txt").read_text().replace("room base:", "room base: tensor", 1)
        self.refuses({}, "rooms include each other in a circle", layers=table)

    def test_a_room_that_is_not_in_the_table(self):
        self.refuses({"fathom/utils/x.cpp": "int x;\n"}, "room utils is not in scripts/layers.txt")

    def test_conditional_compilation_and_macros(self):
        for directive in ("#if 1", "#ifdef X", "#ifndef X", "  # define X 1"):
            with self.subTest(directive):
                self.refuses({"fathom/base/bad.cpp": f"int x;\n{directive}\n"}, "fathom/base/bad.cpp:2: #")

    def test_a_header_without_pragma_once(self):
        self.refuses({"fathom/base/bad.h": "int x;\n"}, "without #pragma once")

    def test_a_file_of_more_than_600_lines_unless_it_is_generated(self):
        self.refuses({"fathom/base/long.cpp": "int x;\n" * 601}, "long.cpp:601: file of 601 lines")
        self.assertEqual(self.run_on({"fathom/base/long.cpp": "int x;\n" * 600})[0], 0)
        generated = "// Generated by tools/make_tables; do not edit.\n" + "int x;\n" * 700
        self.assertEqual(self.run_on({"fathom/base/long.cpp": generated})[0], 0)

    def test_a_path_of_one_machine(self):
        for path in ("/work" + "/x", "/ho" + "me/me/x", "/tm" + "p/x"):
            with self.subTest(path):
                self.refuses({"docs/guide.md": f"fine\nrun {path}\n"}, "docs/guide.md:2: path of one particular machine")


if __name__ == "__main__":
    unittest.main()
