"""Faults: clients that vanish, dawdle or send too much, a full disk, SIGTERM and kill -9 under load. What is promised and
what was seen: docs/reliability.md. The sizes here are short ones; with FATHOM_LONG=1 they are those of that page, and the
figures are appended to the file that FATHOM_FIGURES names."""
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from running_server import MODEL, SANITIZED, Server, chat_body, responses_body

LONG = bool(os.environ.get("FATHOM_LONG"))
PATIENCE = 60 if SANITIZED else 10  # seconds for what should take one


def setUpModule():
    global server, slow
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    slow = SlowAttack()
    server = Server("--context", "8192", "--log-level", "warn")
    for n in range(8):
        server.chat(f"What is {n} + 5?")
    if LONG:  # the cache of all sequences has been in use
        for stream in [open_stream(server, 2000, prompt=f"Count from {n}.") for n in range(16)]:
            assert rest_of(stream)[1]
            stream.close()


def tearDownModule():
    slow.end()
    code = server.end()
    assert code == 0, server.log()


def saw(fault, **figures):
    path = os.environ.get("FATHOM_FIGURES")
    figures = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"fault": fault} | figures) + "\n")


def wait_until(condition, seconds=PATIENCE):
    """Seconds that it took, or None."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.02)
    return None


def connect(to, receive_buffer=None):
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(240)
    connection.connect(("127.0.0.1", to.port))
    return connection


def send_stream(connection, tokens=4000, **more):
    body = json.dumps({"model": MODEL, "prompt": "Count.", "ignore_eos": True, "max_tokens": tokens, "stream": True} | more).encode()
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def open_stream(to, tokens=4000, receive_buffer=None, **more):
    """A socket on which a long stream has begun."""
    connection = connect(to, receive_buffer)
    send_stream(connection, tokens, **more)
    got = b""
    while b"data: " not in got:
        piece = connection.recv(4096)
        assert piece, got
        got += piece
    return connection


def rest_of(connection):
    """What comes until the end, and whether the end is that of a whole answer."""
    got = b""
    try:
        while not got.endswith(b"\r\n0\r\n\r\n"):
            piece = connection.recv(65536)
            if not piece:
                break
            got += piece
    except OSError:
        pass
    return got, got.endswith(b"\r\n0\r\n\r\n")


def ask_health(connection):
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b" 200 " in connection.recv(4096)
    return connection


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


class Others:
    """Somebody who asks for /health and a short answer again and again meanwhile; their statuses and the slowest."""
    def __init__(self, of):
        self.of, self.statuses, self.slowest = of, set(), {"/health": 0.0, "chat": 0.0}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            for name, ask in (("/health", lambda: self.of.get("/health")), ("chat", lambda: self.of.chat())):
                begun = time.monotonic()
                self.statuses.add(ask().status)
                self.slowest[name] = max(self.slowest[name], time.monotonic() - begun)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.over.set()
        self.thread.join()


class FaultTest(unittest.TestCase):
    @contextlib.contextmanager
    def nothing_leaks(self, of, kib=8 * 1024):
        """Descriptors, threads, open requests and resident memory come back to what they were."""
        descriptors, threads, resident = of.descriptors(), of.threads(), of.resident_kib()
        seen = {}
        yield seen
        self.assertIsNotNone(wait_until(lambda: of.metric("fathom_server_open_requests") == 0))
        self.assertIsNotNone(wait_until(lambda: of.descriptors() <= descriptors), (of.descriptors(), descriptors))
        self.assertEqual(of.threads(), threads)
        if not SANITIZED:
            self.assertIsNotNone(wait_until(lambda: of.resident_kib() <= resident + kib), (of.resident_kib(), resident))
        seen |= {"resident_kib_before": resident, "resident_kib_after": of.resident_kib(), "descriptors": of.descriptors()}


class ClientGone(FaultTest):
    STREAMS = 64 if LONG else 12  # of which 16 run and the others wait

    def test_streams_whose_clients_vanish_end_and_the_others_go_on(self):
        first = server.chat("Tell me about cats.").json()["choices"][0]["message"]["content"]
        gone = server.metric("fathom_server_clients_gone")
        with self.nothing_leaks(server) as seen, Others(server) as others:
            streams = [connect(server) for _ in range(self.STREAMS)]
            for stream in streams:
                send_stream(stream)
            self.assertIsNotNone(wait_until(lambda: server.metric("fathom_server_open_requests") >= self.STREAMS))
            for n, stream in enumerate(streams):
                stream.close() if n % 2 else reset(stream)
            # Others asks too: at most one request is open.
            took = wait_until(lambda: server.metric("fathom_server_open_requests") <= 1)
            self.assertIsNotNone(took)
        self.assertEqual(others.statuses, {200})
        self.assertEqual(server.metric("fathom_server_clients_gone") - gone, self.STREAMS)
        self.assertEqual(server.chat("Tell me about cats.").json()["choices"][0]["message"]["content"], first)
        saw("client gone in mid-stream", streams=self.STREAMS, seconds_until_all_ended=took, **seen)


class HalfOpen(FaultTest):
    def test_a_client_that_closes_its_side_after_the_request_counts_as_gone(self):
        with self.nothing_leaks(server):
            stream = open_stream(server)
            stream.shutdown(socket.SHUT_WR)
            self.assertFalse(rest_of(stream)[1])
            stream.close()

    def vanish(self, connection):
        """Closes it without a word to the other side (TCP_REPAIR)."""
        try:
            connection.setsockopt(socket.IPPROTO_TCP, 19, 1)
        except OSError:
            connection.close()
            self.skipTest("this user may not make a connection vanish")
        connection.close()

    def test_a_client_that_vanished_without_a_word_ends_with_the_next_bytes(self):
        with self.nothing_leaks(server):
            self.vanish(open_stream(server))
            self.assertIsNotNone(wait_until(lambda: server.metric("fathom_server_open_requests") == 0))

    @unittest.skipUnless(LONG, "waits for the probes of a silent connection")
    def test_one_that_vanished_between_two_requests_is_found_by_a_probe(self):
        with self.nothing_leaks(server):
            idle = ask_health(connect(server))
            descriptors = server.descriptors()
            self.vanish(idle)
            took = wait_until(lambda: server.descriptors() < descriptors, 50)
            self.assertIsNotNone(took)
        saw("half-open: vanished while idle", seconds_until_closed=took)

    @unittest.skipIf(SANITIZED, "thousands of tokens must fill all buffers first; net_test cuts such readers too")
    def test_a_reader_that_does_not_read_is_cut_and_holds_up_nobody(self):
        cut = server.metric("fathom_server_slow_readers_cut")
        with self.nothing_leaks(server) as seen, Others(server) as others:
            stream = open_stream(server, tokens=8000, receive_buffer=4096, logprobs=20)
            begun, most = time.monotonic(), 0
            while server.metric("fathom_server_slow_readers_cut") == cut:
                most = max(most, server.resident_kib())
                self.assertLess(time.monotonic() - begun, 40 + PATIENCE)
                time.sleep(0.05)
            took = time.monotonic() - begun
            self.assertFalse(rest_of(stream)[1])
            stream.close()
        self.assertEqual(others.statuses, {200})
        saw("half-open: a reader that does not read", seconds_until_cut=took, most_resident_kib=most, **seen)

    @unittest.skipUnless(LONG and os.geteuid() == 0, "takes a network of its own, and a minute")
    def test_a_host_that_is_unplugged_is_given_up(self):
        name = f"fathom{os.getpid()}"
        def ip(words):
            done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
            if done.returncode:
                self.skipTest(done.stderr)
        ip(f"netns add {name}")
        self.addCleanup(subprocess.run, ["ip", "netns", "del", name])
        ip(f"link add {name}a type veth peer name {name}b netns {name}")
        self.addCleanup(subprocess.run, ["ip", "link", "del", f"{name}a"], stderr=subprocess.DEVNULL)
        ip(f"addr add 10.213.7.1/30 dev {name}a")
        ip(f"link set {name}a up")
        ip(f"-n {name} addr add 10.213.7.2/30 dev {name}b")
        ip(f"-n {name} link set {name}b up")
        far = Server("--context", "8192", "--log-level", "warn", host="0.0.0.0")
        self.addCleanup(far.end)
        far.chat()
        with self.nothing_leaks(far):
            program = ("import socket,sys,time\n"
                       f"def ask(bytes): s = socket.create_connection(('10.213.7.1', {far.port})); s.sendall(bytes); s.recv(4096); return s\n"
                       "one = ask(b'GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
                       "body = b'{\"model\":\"%s\",\"prompt\":\"Count.\",\"ignore_eos\":true,\"max_tokens\":8000,\"logprobs\":20,\"stream\":true}'\n" % MODEL +
                       "two = ask(b'POST /v1/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)\n"
                       "print('there', flush=True)\n"
                       "while True: two.recv(65536)\n")
            client = subprocess.Popen(["ip", "netns", "exec", name, "python3", "-c", program], stdout=subprocess.PIPE, text=True)
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)
            self.assertEqual(client.stdout.readline(), "there\n")
            descriptors = far.descriptors()
            ip(f"-n {name} link set {name}b down")
            stream = wait_until(lambda: far.metric("fathom_server_open_requests") == 0, 80)
            idle = wait_until(lambda: far.descriptors() <= descriptors - 2, 80)
            self.assertIsNotNone(stream)
            self.assertIsNotNone(idle)
            client.kill()
            client.stdout.close()
        saw("half-open: host unplugged", seconds_until_stream_ended=stream, seconds_until_both_closed=stream + idle)


class LargeBody(FaultTest):
    MIB = 64 if LONG else 8

    def bodies(self):
        """Hostile ones of so many MiB, each with what its refusal says."""
        size = self.MIB << 20
        message = b'{"role":"user","content":"hi"}'
        yield "one long text", json.dumps(chat_body("a" * size)).encode(), "maximum context length is 8192 tokens. However, you requested at least "
        messages = b",".join([message] * (size // (len(message) + 1)))
        yield ("many messages", b'{"model":"%s","messages":[%s]}' % (MODEL.encode(), messages),
               "more than 1500000 values" if LONG else "maximum context length is 8192 tokens. However, you requested at least ")
        yield "only brackets", b'{"model":"x","messages":[' + b"[],0," * (size // 5) + b"0]}", "more than 1500000 values"
        yield "deep", b'{"model":"x","messages":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}", "127 levels"

    def test_a_large_body_is_refused_with_reason_others_go_on_and_its_memory_comes_back(self):
        for name, body, reason in self.bodies():
            with self.subTest(name), self.nothing_leaks(server) as seen, Others(server) as others:
                begun = time.monotonic()
                answer = server.post("/v1/chat/completions", body)
                took = time.monotonic() - begun
                self.assertEqual(answer.status, 400)
                self.assertIn(reason, answer.json()["error"]["message"])
            self.assertEqual(others.statuses, {200})
            saw(f"{self.MIB} MiB body: {name}", status=400, seconds=took, peak_kib=server.peak_kib(),
                slowest_health=others.slowest["/health"], slowest_chat=others.slowest["chat"], **seen)

    def test_a_longer_one_than_allowed_is_413_before_it_was_sent(self):
        with self.nothing_leaks(server), connect(server) as connection:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 134217729\r\n\r\n")
            self.assertIn(b" 413 ", connection.recv(4096).split(b"\r\n")[0])


class IdleConnections(FaultTest):
    COUNT = 10_000 if LONG else 500

    def test_idle_connections_cost_some_memory_and_nothing_else(self):
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < self.COUNT + 200:
            self.skipTest("the limit of open files is too low")
        server.get("/health")
        # Asio keeps 300 bytes a descriptor for the next ones, and each lies in a page of its own.
        with self.nothing_leaks(server, 8 * 1024 + 5 * self.COUNT) as seen:
            before, descriptors = server.resident_kib(), server.descriptors()
            begun = time.monotonic()
            idle = self.open_idle()
            took, most = time.monotonic() - begun, server.resident_kib()
            each = (most - before) / self.COUNT
            self.assertGreaterEqual(server.metric("fathom_server_connections"), self.COUNT)
            if not SANITIZED:
                self.assertLess(each, 16)
            burnt, begun = server.processor_seconds(), time.monotonic()
            time.sleep(5 if LONG else 0.5)
            share = (server.processor_seconds() - burnt) / (time.monotonic() - begun)
            with Others(server) as others:
                time.sleep(2 if LONG else 0.5)
            self.assertEqual(others.statuses, {200})
            if LONG:  # nobody closes: the server does, 75 s after the last byte
                closed = wait_until(lambda: server.descriptors() <= descriptors + 1, 90)
                self.assertIsNotNone(closed)
                seen["seconds_until_the_server_closed"] = time.monotonic() - begun
            for connection in idle:
                connection.close()
            for connection in self.open_idle():  # they take what the first ones left
                connection.close()
            if not SANITIZED:
                self.assertLess(server.resident_kib(), most + 4096)
        saw("idle connections", connections=self.COUNT, seconds_to_open=took, kib_each=each, processor_share=share,
            slowest_health=others.slowest["/health"], slowest_chat=others.slowest["chat"], **seen)

    def open_idle(self):
        idle = []
        for _ in range(self.COUNT):
            idle.append(connect(server))
            idle[-1].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        for connection in idle:
            self.assertIn(b" 200 ", connection.recv(4096))
        return idle

    def test_with_few_descriptors_too_many_connections_are_told_so(self):
        few = Server("--log-level", "warn", before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)))
        self.addCleanup(few.end)
        few.chat()
        with self.nothing_leaks(few):
            connections = [connect(few) for _ in range(100)]
            for connection in connections:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            statuses = [connection.recv(4096).split(b" ")[1] for connection in connections]
            self.assertEqual(set(statuses), {b"200", b"503"})
            self.assertIn(statuses.count(b"503"), (20, 21, 22))  # of 128 descriptors 80 are for connections, ours from before too
            for connection in connections:
                connection.close()
            self.assertIsNotNone(wait_until(lambda: few.descriptors() < 40))
            self.assertEqual(few.chat().status, 200)


class DiskFull(FaultTest):
    def keep(self, to, **more):
        return to.post("/v1/responses", responses_body(max_output_tokens=4, **more))

    def check(self, to, folder, make_room):
        """Kept before; not kept, and answered all the same, while the disk is full; kept afterwards."""
        self.keep(to, instructions="word " * 2000, store=False)  # its prompt is known from now on and takes no more memory
        first = self.keep(to).json()["id"]
        self.assertIsNotNone(wait_until((folder / f"{first}.json").exists))
        yield
        with self.nothing_leaks(to) as seen:
            lost = []
            for _ in range(20):
                answer = self.keep(to, instructions="word " * 2000)
                self.assertEqual(answer.status, 200, answer.body)
                lost.append(answer.json()["id"])
            self.assertIsNotNone(wait_until(lambda: to.metric("fathom_server_store_failures") == len(lost)))
        self.assertEqual({to.get(f"/v1/responses/{one}").status for one in lost}, {404})
        self.assertEqual(to.get(f"/v1/responses/{first}").status, 200)
        self.assertEqual({path.suffix for path in folder.iterdir()}, {".json"})  # no half file
        self.assertEqual(self.keep(to, previous_response_id=first).status, 200)
        make_room()
        kept = self.keep(to, instructions="word " * 2000).json()["id"]
        self.assertIsNotNone(wait_until((folder / f"{kept}.json").exists))
        self.assertEqual(to.end(), 0)
        again = Server("--response-store", str(folder), "--log-level", "warn")
        self.addCleanup(again.end)
        self.assertEqual(again.get(f"/v1/responses/{kept}").status, 200)
        self.assertEqual(self.keep(again, previous_response_id=first).status, 200)
        saw("disk full", answers=len(lost), status=200, store_failures=len(lost), **seen)

    @unittest.skipUnless(os.geteuid() == 0, "only root may mount a small disk")
    def test_answers_go_on_and_are_kept_again_when_there_is_room(self):
        folder = Path(tempfile.mkdtemp(prefix="fathom-small-"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True)
        self.addCleanup(folder.rmdir)
        if mounted.returncode:
            self.skipTest("this user may not mount a small disk")
        self.addCleanup(subprocess.run, ["umount", "-l", str(folder)])
        store = folder / "store"
        to = Server("--response-store", str(store), "--log-level", "warn")
        self.addCleanup(to.end)
        filler = folder / "filler"
        for _ in self.check(to, store, filler.unlink):
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(512))

    def test_a_file_that_may_not_grow_further_ends_no_server(self):
        with tempfile.TemporaryDirectory() as folder:
            limit = 8 * 1024
            to = Server("--response-store", folder, "--log-level", "warn",
                        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)))
            self.addCleanup(to.end)
            def make_room():
                resource.prlimit(to.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            for _ in self.check(to, Path(folder), make_room):
                pass

    def test_a_log_that_cannot_be_written_ends_no_answer(self):
        with open("/dev/full", "w") as full:
            to = Server(errors=full)
            self.addCleanup(to.end)
            self.assertEqual({to.chat().status for _ in range(20)}, {200})
            self.assertEqual(to.end(), 0)


class Killed(FaultTest):
    ROUNDS, SECONDS = (10, 3) if LONG else (1, 10 if SANITIZED else 1.5)

    def test_what_is_kept_is_whole_or_not_there_and_the_next_start_takes_the_port_at_once(self):
        with tempfile.TemporaryDirectory() as name:
            folder, before, lost, longest = Path(name), {}, 0, 0.0
            to = Server("--response-store", name, "--log-level", "warn")
            self.addCleanup(lambda: to.end())
            for _ in range(self.ROUNDS):
                answered = {}
                writers = [threading.Thread(target=self.write, args=(to, answered)) for _ in range(4)]
                for writer in writers:
                    writer.start()
                time.sleep(self.SECONDS)
                stream = open_stream(to)
                killed = time.monotonic()
                to.process.kill()
                for writer in writers:
                    writer.join()
                self.assertFalse(rest_of(stream)[1], "a cut answer looks whole")
                stream.close()
                (folder / "left_behind.json.part").write_text('{"tenant":')
                for path in folder.glob("*.json"):
                    self.assertEqual(sorted(json.loads(path.read_text())), ["input", "response", "tenant"])
                begun = time.monotonic()
                to = Server("--response-store", name, "--log-level", "warn", port=to.port)
                restarted = time.monotonic() - begun
                self.assertEqual(list(folder.glob("*.part")), [])
                before |= answered
                there = {one for one in before if to.get(f"/v1/responses/{one}").status == 200}
                self.assertEqual(there, {path.stem for path in folder.glob("*.json")} & set(before))
                # Answers of the last moment may not have been written.
                not_kept = [killed - answered[one] for one in set(answered) - there]
                self.assertLess(max(not_kept, default=0), PATIENCE)
                lost, longest = lost + len(not_kept), max([longest, *not_kept])
                before = {one: before[one] for one in there}
                last = next(iter(there))
                self.assertEqual(to.post("/v1/responses", responses_body("And?", previous_response_id=last)).status, 200)
            self.assertEqual(to.end(), 0)
            saw("kill -9 and restart", rounds=self.ROUNDS, kept=len(before), lost_of_the_last_moment=lost, answered_at_most_seconds_before=longest, damaged=0,
                seconds_until_ready=restarted)

    def write(self, to, answered):
        while True:
            try:
                answer = to.post("/v1/responses", responses_body(max_output_tokens=2))
            except (OSError, http.client.HTTPException):
                return
            answered[answer.json()["id"]] = time.monotonic()


class Terminated(FaultTest):
    STREAMS = 64 if LONG else 20  # of which 16 run and the others wait

    def under_load(self, drain, tokens):
        """SIGTERM with streams open: their ends, the exit code, seconds, and what a new request got."""
        to = Server("--context", "8192", "--drain", drain)
        self.addCleanup(to.end)
        idle = ask_health(connect(to))
        ends = []
        def read(connection):
            ends.append(rest_of(connection))
        connections = [connect(to) for _ in range(self.STREAMS)]
        for n, connection in enumerate(connections):
            send_stream(connection, tokens, prompt=f"Count from {n}.")
        threads = [threading.Thread(target=read, args=(c,)) for c in connections]
        for thread in threads:
            thread.start()
        self.assertIsNotNone(wait_until(lambda: to.metric("fathom_server_open_requests") == self.STREAMS))
        begun = time.monotonic()
        to.process.send_signal(signal.SIGTERM)
        self.assertTrue(to.wait_for_log("draining"))
        refused = to.chat()
        code = to.process.wait(240)
        took = time.monotonic() - begun
        for thread in threads:
            thread.join()
        for connection in [*connections, idle]:
            connection.close()
        self.assertEqual((code, refused.status), (0, 503))
        with self.assertRaises(OSError), socket.create_connection(("127.0.0.1", to.port), timeout=5):
            pass
        return ends, took

    def test_every_stream_ends_whole_when_there_is_time(self):
        ends, took = self.under_load("5m", 200)
        self.assertEqual([whole for _, whole in ends], [True] * self.STREAMS)
        for got, _ in ends:
            self.assertIn(b"data: [DONE]", got)
        saw("SIGTERM under load, time enough", streams=self.STREAMS, whole=self.STREAMS, exit_code=0, seconds=took)

    def test_what_has_no_time_is_told_so_in_the_stream(self):
        ends, took = self.under_load("500ms", 7000)
        told = [got for got, whole in ends if whole and b'"error"' in got and b"[DONE]" not in got]
        # One that waited in the queue has no stream yet and gets the status.
        waited = [got for got, _ in ends if got.startswith(b"HTTP/1.1 503 ")]
        self.assertEqual(len(told) + len(waited), self.STREAMS)
        self.assertLess(took, 6 + PATIENCE)
        saw("SIGTERM under load, half a second", streams=self.STREAMS, told_in_the_stream=len(told), told_by_status=len(waited),
            exit_code=0, seconds=took)


class SlowAttack:
    """Clients that send a byte now and then: headers, bodies. Goes on while the other tests run."""
    HEADERS, BODIES = (1000, 100) if LONG else (40, 10)

    def __init__(self):
        # A small cache: each answer touches blocks that none had before, 18.9 MB of them by default.
        self.server = Server("--log-level", "warn", "--sequences", "2", "--context", "512")
        for n in range(8):
            self.server.chat(f"What is {n} + 5?")
        self.before = self.server.descriptors(), self.server.resident_kib()
        self.ended = {}  # socket -> (seconds, its answer)
        self.begun = time.monotonic()
        self.headers = [connect(self.server) for _ in range(self.HEADERS)]
        self.bodies = [connect(self.server) for _ in range(self.BODIES)]
        for connection in self.headers:
            connection.sendall(b"GET /health HTTP/1.1\r\nX: ")
        for connection in self.bodies:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
        all_there = self.before[0] + self.HEADERS + self.BODIES - 1
        assert wait_until(lambda: self.server.descriptors() >= all_there) is not None
        self.most = self.server.descriptors()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        alive = self.headers + self.bodies
        for connection in alive:
            connection.setblocking(False)
        while alive and time.monotonic() - self.begun < 60:
            time.sleep(0.5)
            for connection in list(alive):
                got = b""
                try:
                    got = connection.recv(4096)
                except BlockingIOError:
                    with contextlib.suppress(OSError):
                        connection.send(b"x")
                    continue
                except OSError:
                    pass
                self.ended[connection] = (time.monotonic() - self.begun, got)
                connection.close()
                alive.remove(connection)

    def end(self):
        self.thread.join()
        self.server.end()


class SlowSenders(FaultTest):
    def test_they_get_408_in_time_while_others_are_answered(self):
        with Others(slow.server) as others:
            slow.thread.join()
        self.assertEqual(others.statuses, {200})
        late = PATIENCE if SANITIZED else 3
        for kind, connections, seconds in (("headers", slow.headers, 10), ("bodies", slow.bodies, 20)):
            times = [slow.ended[c][0] for c in connections]
            self.assertEqual({slow.ended[c][1].split(b"\r\n")[0] for c in connections}, {b"HTTP/1.1 408 Request Timeout"}, kind)
            self.assertGreater(min(times), seconds - 1, kind)
            self.assertLess(max(times), seconds + 1 + late, kind)
            saw(f"slowloris: {kind}", sockets=len(connections), status=408, first_after=min(times), last_after=max(times),
                most_descriptors=slow.most, slowest_health=others.slowest["/health"], slowest_chat=others.slowest["chat"])
        self.assertIsNotNone(wait_until(lambda: slow.server.descriptors() <= slow.before[0]))
        if not SANITIZED:
            self.assertLess(slow.server.resident_kib(), slow.before[1] + 12 * 1024)


if __name__ == "__main__":
    unittest.main()
