"""Starts the built program (FATHOM_PROGRAM) as `fathom serve` on a free port and asks it with the standard library."""
import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("FATHOM_PROGRAM", str(ROOT / "build/release/fathom"))
MODEL = "DeepSeek-V4.1-Flash"
_bytes = Path(PROGRAM).read_bytes() if Path(PROGRAM).is_file() else b""
SANITIZED = b"__asan_init" in _bytes or b"__tsan_init" in _bytes  # memory is theirs then, and all is slow
del _bytes
SECONDS = 240  # until it is ready, for an answer: the sanitizers are slow


def environment(extra=None):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FATHOM_") and k != "NO_COLOR"}
    return kept | (extra or {})


class Answer:
    def __init__(self, response, body):
        self.status = response.status
        self.headers = response.headers
        self.body = body

    def json(self):
        return json.loads(self.body)

    def events(self):
        return parse_events(self.body.decode())


def parse_events(text):
    """[(event name or None, data)] of a stream; comments are left out."""
    events = []
    for block in text.split("\n\n"):
        name, data = None, []
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
        if data:
            events.append((name, "\n".join(data)))
    return events


class Server:
    def __init__(self, *options, env=None, host="127.0.0.1", port=0, errors=None, before=None):
        """`errors`: a file for its log, which log() then does not read; `before`: called in the child before it starts."""
        self.errors, self.has_log = errors or tempfile.TemporaryFile(mode="w+"), errors is None
        self.process = subprocess.Popen([PROGRAM, "serve", "--listen", f"{host}:{port}", *options], env=environment(env),
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, preexec_fn=before)
        killer = threading.Timer(SECONDS, self.process.kill)
        killer.start()
        self.ready = self.process.stdout.readline()
        killer.cancel()
        found = re.search(r"https?://(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)", self.ready)
        if not found:
            self.process.kill()
            raise AssertionError(f"the server did not get ready: {self.ready}{self.log()}")
        self.url, self.port = found.group(0), int(found.group(1))

    def log(self):
        if not self.has_log:
            return ""
        if self.errors.closed:
            return self.last_log
        with open(f"/proc/self/fd/{self.errors.fileno()}") as reader:
            return reader.read()

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body).encode()
            connection.request(method, path, body=body, headers={"Content-Type": "application/json"} | (headers or {}))
            response = connection.getresponse()
            return Answer(response, response.read())
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.ask("GET", path, headers=headers)

    def post(self, path, body, headers=None):
        return self.ask("POST", path, body, headers)

    def chat(self, text="What is 7 + 5?", **more):
        return self.post("/v1/chat/completions", chat_body(text, **more))

    def metric(self, name):
        text = self.get("/metrics").body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(name + r"(\{| )", line))

    def wait_for_log(self, pattern):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if re.search(pattern, self.log()):
                return True
            time.sleep(0.02)
        return False

    def peak_kib(self):
        return self.status_kib("VmHWM")

    def resident_kib(self):
        return self.status_kib("VmRSS")

    def status_kib(self, name):
        return int(re.search(name + r":\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text()).group(1))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def processor_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, number=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            if not self.errors.closed:
                self.last_log = self.log()
                self.errors.close()


def chat_body(text="What is 7 + 5?", **more):
    """Greedy and without thinking, so that the same question has the same answer."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"},
            "temperature": 0, "max_tokens": 40} | more


def messages_body(text="What is 7 + 5?", **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"},
            "temperature": 0, "max_tokens": 40} | more


def responses_body(text="What is 7 + 5?", **more):
    return {"model": MODEL, "input": text, "reasoning": {"effort": "none"}, "temperature": 0, "max_output_tokens": 40} | more
