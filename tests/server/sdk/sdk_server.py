"""The servers that the conformance suite asks: one that anybody may ask, one with keys. Started once, ended at exit."""
import atexit
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from running_server import MODEL, Server  # noqa: E402,F401

SUM = "What is 37 + 45?"
FOX = "the quick brown fox jumps over the lazy dog and runs away " * 12
PLAIN = {"thinking": {"type": "disabled"}}
ALARM = {"type": "function", "function": {"name": "set_alarm", "description": "Sets an alarm.", "strict": True, "parameters": {
    "type": "object", "properties": {"hour": {"type": "integer"}, "minute": {"type": "integer"}}, "required": ["hour", "minute"], "additionalProperties": False}}}

_servers = {}


class SdkServer(Server):
    def becomes_idle(self, seconds=10):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.get("/ready").json()["open_requests"] == 0:
                return True
            time.sleep(0.05)
        return False


def server_of(kind="open"):
    if kind not in _servers:
        if kind == "keys":
            keys = Path(tempfile.mkdtemp(prefix="fathom-sdk-")) / "keys.txt"
            keys.write_text("secret-of-alice tenant=alice\nsecret-of-carl requests=2\nsecret-of-dan requests=2\nsecret-of-fay requests=40\n")
            _servers[kind] = SdkServer("--api-key-file", str(keys))
        else:
            _servers[kind] = SdkServer("--response-store", "memory")
        atexit.register(_servers[kind].end)
    return _servers[kind]


def needs_server():
    server_of()


def open_client(kind, api_key="no-key-needed", max_retries=0, **more):
    return kind(api_key=api_key, max_retries=max_retries, **more)
