"""scripts/setup on machines that are made up: dpkg-query, apt-get, id and sudo are small scripts in a folder of their own.

Run: python3 -m unittest tests/scripts/setup_test.py
"""
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"
PACKAGES = subprocess.run([SETUP, "--list"], capture_output=True, text=True, check=True).stdout.split()


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="fathom_setup_"))
        self.addCleanup(shutil.rmtree, self.folder)
        # Nothing of the real machine but what the script needs: what is not linked here does not exist.
        for tool in ("bash", "env", "cat", "mktemp", "rm", "tail", "printf"):
            if found := shutil.which(tool):
                (self.folder / tool).symlink_to(found)
        self.log = self.folder / "log"
        self.log.touch()

    def tool(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def machine(self, missing=(), user=0, apt='echo "apt-get $*" >> "$LOG"', sudo=None):
        lines = " ".join(f"installed:{package}" for package in PACKAGES if package not in missing)
        self.tool("dpkg-query", f'echo "{lines} "; exit {1 if missing else 0}')
        self.tool("apt-get", apt)
        self.tool("id", f"echo {user}")
        if sudo is not None:
            self.tool("sudo", sudo)

    def run_setup(self, *arguments, **environment):
        return subprocess.run([str(SETUP), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={"PATH": str(self.folder), "LOG": str(self.log), "TMPDIR": str(self.folder), **environment})

    def test_nothing_is_missing_so_nothing_is_said_or_done_and_at_once(self):
        self.machine()
        begin = time.monotonic()
        done = self.run_setup()
        self.assertLess(time.monotonic() - begin, 0.3)
        self.assertEqual((done.returncode, done.stdout, done.stderr, self.log.read_text()), (0, "", "", ""))

    def test_root_installs_exactly_what_is_missing(self):
        self.machine(missing=["ninja-build", "g++"])
        done = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        update, install = self.log.read_text().splitlines()
        self.assertIn("update", update)
        self.assertTrue(install.endswith("--no-install-recommends ninja-build g++"), install)

    def test_a_user_installs_through_sudo(self):
        self.machine(missing=["cmake"], user=1000, sudo='[[ "$1" == -n ]] && exit 0; echo "sudo $1" >> "$LOG"; "$@"')
        done = self.run_setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.log.read_text().count("sudo env"), 2)
        self.assertIn("--no-install-recommends cmake", self.log.read_text())

    def test_a_user_without_sudo_is_told_the_packages_and_the_command_in_one_line(self):
        for sudo in (None, "exit 1"):  # not installed; asks for a password that nobody can type
            with self.subTest(sudo):
                self.machine(missing=["cmake", "libssl-dev"], user=1000, sudo=sudo)
                done = self.run_setup()
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn("apt-get install --no-install-recommends cmake libssl-dev", done.stderr)
                self.assertEqual(self.log.read_text(), "")

    def test_a_failing_apt_get_shows_its_last_words(self):
        self.machine(missing=["cmake"], apt='echo "Temporary failure resolving"; exit 100')
        done = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("Temporary failure resolving", done.stderr)
        self.assertIn("setup: apt-get failed", done.stderr)

    def test_another_system_is_told_what_to_install(self):
        done = self.run_setup()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)
        for package in PACKAGES:
            self.assertIn(package, done.stderr)
        self.assertEqual(self.run_setup(FATHOM_SKIP_SETUP="1").returncode, 0)

    def test_an_unknown_option_exits_2_and_names_the_valid_ones(self):
        done = self.run_setup("--tests")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tests", done.stderr)
        self.assertIn("--test,", done.stderr)

    def test_the_dependencies_page_knows_every_library_package(self):
        page = (SETUP.parents[1] / "docs" / "dependencies.md").read_text().lower().replace("+", "plus")
        for package in PACKAGES:
            if package.startswith("lib"):
                name = package.removeprefix("lib").removesuffix("-dev").removesuffix("11").replace("tomlplusplus", "toml")
                self.assertIn(name, page, f"{package} is not in docs/dependencies.md")


if __name__ == "__main__":
    unittest.main()
