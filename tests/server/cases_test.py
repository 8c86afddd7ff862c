"""The requests of the cases, also those of coding agents, sent to the real program: each gets the status that its case
expects. What the rendered prompt and the parsed answer look like is checked where no model is needed (the codec's tests)."""
import json
import os
import unittest
from pathlib import Path

from running_server import Server

SHARED = os.environ.get("FATHOM_SHARED")
PATHS = {"chat_request": "/v1/chat/completions", "responses_request": "/v1/responses", "messages_request": "/v1/messages"}


def rows():
    """(case id, path, body, statuses that the case allows)"""
    for line in (Path(SHARED) / "cases/cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        kind = case["input"]["kind"]
        many = kind.endswith("_set")
        path = PATHS.get(kind.removesuffix("_set"))
        if path is None:
            continue
        bodies = case["input"]["bodies"] if many else [case["input"]["body"]]
        expected = case["expected"] if isinstance(case["expected"], dict) else {}
        status = expected.get("status", expected.get("status_in") or 200)
        if "either" in expected:
            status = {one["status"] for one in expected["either"]}
        for i, body in enumerate(bodies):
            listed = isinstance(status, list) and "status" in expected
            allowed = status[i] if listed else status
            yield case["id"], path, body, {allowed} if isinstance(allowed, int) else set(allowed)


@unittest.skipUnless(SHARED, "FATHOM_SHARED names no folder with cases")
class Cases(unittest.TestCase):
    def test_each_request_of_the_cases_gets_its_status(self):
        server = Server()
        self.addCleanup(server.end)
        count = 0
        for case, path, body, status in rows():
            images = '"image' in json.dumps(body)
            short = "max_output_tokens" if path.endswith("responses") else "max_tokens"
            body = body | ({} if short in body else {short: 4})
            with self.subTest(case=case, path=path):
                answer = server.post(path, body)
                # This build refuses every image, clearly: there is no vision yet.
                self.assertIn(answer.status, {400} if images else status, answer.body)
                if answer.status == 400:
                    self.assertEqual(answer.json()["error"]["type"], "invalid_request_error")
            count += 1
        self.assertGreater(count, 20)


if __name__ == "__main__":
    unittest.main()
