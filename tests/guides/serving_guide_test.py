"""The blocks of docs/guides/serving.md against a running `fathom serve` on a free port, and the files of docs/deploy with the
programs that read them, where those are installed. FATHOM_PROGRAM names the program; FATHOM_SDK_PYTHON an interpreter that
has the openai and anthropic packages (default: build/sdk-environment of scripts/test --sdk)."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/server"))
from running_server import PROGRAM, Server, environment  # noqa: E402

GUIDE = ROOT / "docs/guides/serving.md"
DEPLOY = ROOT / "docs/deploy"
SDK_PYTHON = Path(os.environ.get("FATHOM_SDK_PYTHON", ROOT / "build/sdk-environment/bin/python"))
SECONDS = 240


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Guide(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def here(self, script):
        return script.replace("http://127.0.0.1:8000", self.server.url).replace("build/release/fathom", str(PROGRAM))

    def run_block(self, words, script):
        done = subprocess.run(words + [self.here(script)], capture_output=True, text=True, timeout=SECONDS, env=environment())
        self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_every_command_that_asks_the_server(self):
        asking = [block for block in blocks("sh") if "http://127.0.0.1:8000" in block]
        self.assertGreaterEqual(len(asking), 6)
        for block in asking:
            with self.subTest(block.splitlines()[0]):
                if "curl" in block and shutil.which("curl") is None:
                    self.skipTest("curl is not installed")
                self.assertNotEqual(self.run_block(["bash", "-euo", "pipefail", "-c"], block), "")

    def test_the_sdk_snippets(self):
        if not SDK_PYTHON.exists():
            self.skipTest("no interpreter with the SDKs: scripts/test --sdk makes one")
        for block in blocks("python"):
            with self.subTest(block.splitlines()[0]):
                self.assertIn("usage", self.run_block([str(SDK_PYTHON), "-c"], block).lower())


class Manual(unittest.TestCase):
    def test_every_key_of_every_log_line_is_explained(self):
        """Bug that this finds: a line is added, the operator's manual does not know it."""
        server = Server("--log-prompts", "--debug-routes", "--max-body", "10kB")
        self.addCleanup(server.end)
        server.chat()
        server.chat(stream=True)
        server.get("/nothing")
        self.assertEqual(server.post("/v1/chat/completions", {"text": "x" * 20000}).status, 413)
        server.end()
        manual = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
        lines = [line for line in server.log().splitlines() if "level=" in line]
        self.assertGreaterEqual(len(lines), 6)
        for line in lines:
            line = re.sub(r'="(\\.|[^"\\])*"', "=", line)  # texts in quotes have no keys
            for key in re.findall(r"(?<!\S)(\w+)=", line):
                known = key in ("time", "level") or f"{key}=" in manual
                self.assertTrue(known, f"docs/operating.md 4 does not know {key}= of {line}")
        for words in ("draining ", "ended"):
            self.assertTrue(any(f"level=info {words}" in line for line in lines), words)


class Deploy(unittest.TestCase):
    def check(self, program, words):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def folder(self):
        path = Path(tempfile.mkdtemp(prefix="fathom-deploy-"))
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        return path

    def certificate(self, folder):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=llm.example.org",
                        "-keyout", folder / "key", "-out", folder / "pem"], check=True, capture_output=True)
        (folder / "both").write_bytes((folder / "pem").read_bytes() + (folder / "key").read_bytes())

    def test_systemd_takes_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        unit = self.folder() / "fathom.service"
        unit.write_text((DEPLOY / "fathom.service").read_text().replace("/usr/bin/fathom", str(Path(PROGRAM).resolve())))
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
        # Without a running systemd it also complains about other units of the machine.
        ours = [line for line in done.stderr.splitlines() if "fathom" in line]
        self.assertEqual(ours, [])

    def test_nginx_takes_its_file(self):
        if shutil.which("nginx") is None:
            self.skipTest("nginx is not installed")
        folder = self.folder()
        self.certificate(folder)
        site = (DEPLOY / "nginx.conf").read_text().replace("/etc/ssl/llm.example.org.pem", str(folder / "pem"))
        site = site.replace("/etc/ssl/private/llm.example.org.key", str(folder / "key")).replace("listen 443", "listen 18443")
        version = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr
        if tuple(map(int, re.search(r"/(\d+)\.(\d+)\.(\d+)", version).groups())) < (1, 25, 1):
            site = re.sub(r" *http2 on;.*\n", "", site)
        (folder / "site.conf").write_text(site)
        kept = "".join(f"{name}_temp_path {folder}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(f"pid {folder}/pid;\nerror_log {folder}/log;\nevents {{}}\n"
                                           f"http {{ access_log off; {kept} include {folder}/site.conf; }}\n")
        self.check("nginx", ["-t", "-c", folder / "nginx.conf"])

    def test_haproxy_takes_its_file(self):
        if shutil.which("haproxy") is None:
            self.skipTest("haproxy is not installed")
        folder = self.folder()
        self.certificate(folder)
        (folder / "cfg").write_text((DEPLOY / "haproxy.cfg").read_text().replace("/etc/haproxy/llm.example.org.pem", str(folder / "both")))
        self.check("haproxy", ["-c", "-f", folder / "cfg"])


if __name__ == "__main__":
    unittest.main()
