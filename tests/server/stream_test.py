"""Streams as bytes: their frames, a client that leaves, a client that does not read."""
import json
import socket
import time
import unittest

from running_server import MODEL, Server, chat_body, messages_body, parse_events, responses_body


def setUpModule():
    global server
    server = Server("--context", "8192")


def tearDownModule():
    code = server.end()
    assert code == 0, server.log()


def content_of(events):
    chunks = [json.loads(data) for _, data in events if data != "[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)


class Frames(unittest.TestCase):
    def test_case_stream_01_a_character_over_several_tokens(self):
        for body in (chat_body("Say 👩‍🚀!", temperature=1, seed=3, stream=True),):
            answer = server.post("/v1/chat/completions", body)
            answer.body.decode("utf-8")  # every frame is whole

    def test_case_stream_02_a_stop_text_never_appears(self):
        whole = server.chat("Tell me about cats.").json()["choices"][0]["message"]["content"]
        self.assertGreater(len(whole), 8, whole)
        stop = whole[3:6]
        before = whole[:whole.index(stop)]
        for stream in (False, True):
            answer = server.post("/v1/chat/completions", chat_body("Tell me about cats.", stop=[stop], stream=stream))
            text = content_of(answer.events()) if stream else answer.json()["choices"][0]["message"]["content"]
            self.assertEqual(text, before)

    def test_case_stream_05_thinking_ends_at_its_limit(self):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "seed": 1}
        choice = server.post("/v1/chat/completions", body).json()["choices"][0]
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("length", ""))

    def test_case_stream_06_first_middle_and_last_chunk(self):
        events = server.post("/v1/chat/completions", chat_body(stream=True)).events()
        self.assertEqual(events[-1], (None, "[DONE]"))
        chunks = [json.loads(data) for _, data in events[:-1]]
        self.assertTrue(all("choices" in chunk for chunk in chunks))
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        self.assertEqual(set(reasons[:-1]), {None})
        self.assertEqual(reasons[-1], "stop")

    def test_usage_is_in_the_last_chunk(self):
        events = server.post("/v1/chat/completions", chat_body(stream=True, stream_options={"include_usage": True})).events()
        self.assertGreater(json.loads(events[-2][1])["usage"]["completion_tokens"], 0)

    def test_events_of_messages_and_responses(self):
        names = [name for name, _ in server.post("/v1/messages", messages_body(stream=True)).events()]
        self.assertEqual((names[0], names[-2], names[-1]), ("message_start", "message_delta", "message_stop"))
        self.assertIn("ping", names)
        events = server.post("/v1/responses", responses_body(stream=True)).events()
        self.assertEqual((events[0][0], events[-1][0]), ("response.created", "response.completed"))
        numbers = [json.loads(data)["sequence_number"] for _, data in events]
        self.assertEqual(numbers, list(range(len(numbers))))

    def test_many_streams_at_once_do_not_mix(self):
        import threading
        expected = {n: server.chat(f"What is {n} + 1?").json()["choices"][0]["message"]["content"] for n in range(6)}
        got = {}
        def ask(n):
            got[n] = content_of(server.post("/v1/chat/completions", chat_body(f"What is {n} + 1?", stream=True)).events())
        threads = [threading.Thread(target=ask, args=(n,)) for n in expected for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, expected)


def open_stream(text="Count.", **more):
    """A socket on which a long stream has begun."""
    body = json.dumps({"model": MODEL, "prompt": text, "ignore_eos": True, "max_tokens": 4000, "stream": True} | more).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    got = b""
    while b"data: " not in got:
        piece = connection.recv(4096)
        assert piece, got
        got += piece
    return connection


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Leaving(unittest.TestCase):
    def test_a_client_that_leaves_in_mid_stream_frees_the_engine(self):
        connection = open_stream()
        self.assertEqual(server.metric("fathom_server_open_requests"), 1)
        connection.close()
        self.assertTrue(wait_until(lambda: server.metric("fathom_server_open_requests") == 0, 5))
        self.assertTrue(server.wait_for_log(r"status=499 .*finish=cancelled"), server.log())

    def test_a_client_that_resets_does_too(self):
        connection = open_stream()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()
        self.assertTrue(wait_until(lambda: server.metric("fathom_server_open_requests") == 0, 5))

    def test_a_client_that_leaves_before_the_first_byte_of_a_whole_answer(self):
        body = json.dumps({"model": MODEL, "prompt": "Count.", "ignore_eos": True, "max_tokens": 4000}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.assertTrue(wait_until(lambda: server.metric("fathom_server_open_requests") == 1))
        self.assertTrue(wait_until(lambda: server.metric("fathom_server_open_requests") == 0, 5))


if __name__ == "__main__":
    unittest.main()
