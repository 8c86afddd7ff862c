"""What the clients of the soak do: each kind of request with what its answer must be like. A kind is a function of a
client that asks once and raises AssertionError when the server did not keep what it promises."""
import gzip
import http.client
import json
import socket

from running_server import MODEL, Answer, chat_body, messages_body, responses_body

ADDRESS = {"type": "object", "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}},
           "required": ["n", "ok"], "additionalProperties": False}
ALARM = {"type": "object", "properties": {"hour": {"type": "integer"}}, "required": ["hour"], "additionalProperties": False}
WORDS = "the a fox crow cheese river stone tells gives sees old small red bright until because seven twelve never again".split()


def need(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(w)[:300] for w in what))


class Client:
    """One that keeps its connection, like the SDKs do."""
    def __init__(self, port, random):
        self.port, self.random = port, random
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method, path, body=None, headers=None):
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        for again in (True, False):
            try:
                self.connection.request(method, path, body, {"Content-Type": "application/json"} | (headers or {}))
                response = self.connection.getresponse()
                break
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # The server may close a connection between two requests; once is no fault, a new one must work.
                self.connection.close()
                if not again:
                    raise
        answer = Answer(response, response.read())
        return answer

    def post(self, path, body, headers=None, status=200):
        answer = self.ask("POST", path, body, headers)
        need(answer.status == status, path, answer.status, answer.body)
        return answer

    def question(self):
        r = self.random
        return r.choice([f"What is {r.randrange(1000)} + {r.randrange(1000)}?", "Tell me about cats.", "Say hello in French.",
                         "Give me json.", "Count to ten.", "Tell me about the fox and the crow."])

    def story(self, words):
        return " ".join(self.random.choice(WORDS) for _ in range(words))

    def style(self):
        """Sampling, now greedy, now with penalties and a seed."""
        r = self.random
        return r.choice([{"temperature": 0}, {"temperature": 1}, {"temperature": 0.7, "top_p": 0.9}])

    def length(self):
        return self.random.choice((8, 24, 24, 60, 120))


def events_of(answer, end):
    events = answer.events()
    need(events, "no events")
    need(end(events[-1]), "the stream ended with", events[-1])
    need(not any(name == "error" or '"error":{' in data for name, data in events), "an error in the stream")
    return events


def chat(c):
    message = c.post("/v1/chat/completions", chat_body(c.question(), max_tokens=c.length()) | c.style()).json()
    need(message["usage"]["completion_tokens"] > 0, message)


def chat_stream(c):
    body = chat_body(c.question(), max_tokens=c.length(), stream=True, stream_options={"include_usage": True}) | c.style()
    if c.random.random() < 0.3:
        body |= {"logprobs": True, "top_logprobs": 5, "frequency_penalty": 0.5, "seed": c.random.randrange(1000)}
    events = events_of(c.post("/v1/chat/completions", body), lambda last: last[1] == "[DONE]")
    need(json.loads(events[-2][1])["usage"]["completion_tokens"] > 0, events[-2])


def chat_thinking(c):
    body = {"model": MODEL, "messages": [{"role": "user", "content": c.question()}], "reasoning_effort": "low", "max_tokens": 120}
    events_of(c.post("/v1/chat/completions", body | {"stream": True}), lambda last: last[1] == "[DONE]")


def chat_long(c):
    """Half of it is what somebody else asked before, so the prefix cache has work."""
    shared = "The fox and the crow. " * (20 + 10 * c.random.randrange(8))
    body = chat_body(shared + c.story(c.random.randrange(50, 400)), max_tokens=c.length())
    c.post("/v1/chat/completions", body)


def responses(c):
    answer = c.post("/v1/responses", responses_body(c.question(), max_output_tokens=c.length())).json()
    need(answer["object"] == "response" and answer["status"] in ("completed", "incomplete"), answer)


def responses_stream(c):
    body = responses_body(c.question(), max_output_tokens=c.length(), stream=True)
    events_of(c.post("/v1/responses", body), lambda last: last[0] in ("response.completed", "response.incomplete"))


def conversation(c):
    first = c.post("/v1/responses", responses_body(c.question(), max_output_tokens=16)).json()["id"]
    # The store is small on purpose: a response that was pushed out by others is refused by name.
    second = c.ask("POST", "/v1/responses", responses_body("And plus 1?", previous_response_id=first, max_output_tokens=16))
    need(second.status in (200, 400), second.status, second.body)
    if second.status == 400:
        need("not found" in second.json()["error"]["message"], second.body)
    else:
        c.ask("DELETE", f"/v1/responses/{first}")


def messages(c):
    answer = c.post("/v1/messages", messages_body(c.question(), max_tokens=c.length())).json()
    need(answer["type"] == "message" and answer["usage"]["output_tokens"] > 0, answer)


def messages_stream(c):
    body = messages_body(c.question(), max_tokens=c.length(), stream=True)
    events_of(c.post("/v1/messages", body), lambda last: last[0] == "message_stop")


def completions_stream(c):
    body = {"model": MODEL, "prompt": c.story(40), "max_tokens": c.length(), "ignore_eos": True, "stream": True}
    events_of(c.post("/v1/completions", body), lambda last: last[1] == "[DONE]")


def tools(c):
    tool = [{"type": "function", "function": {"name": "set_alarm", "strict": True, "parameters": ALARM}}]
    body = chat_body(f"Wake me at {c.random.randrange(24)}.", tools=tool, tool_choice="required", max_tokens=200)
    choice = c.post("/v1/chat/completions", body).json()["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    need(isinstance(json.loads(call["arguments"])["hour"], int), choice)


def tools_messages(c):
    tool = [{"name": "set_alarm", "description": "Sets an alarm.", "input_schema": ALARM}]
    body = messages_body(f"Wake me at {c.random.randrange(24)}.", tools=tool, tool_choice={"type": "any"}, max_tokens=200, stream=True)
    events_of(c.post("/v1/messages", body), lambda last: last[0] == "message_stop")


def json_schema(c):
    schema = json.loads(json.dumps(ADDRESS))
    schema["properties"][f"k{c.random.randrange(8)}"] = {"type": "string", "enum": ["a", "b"]}  # some are compiled, some are found again
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema | {"required": list(schema["properties"])}}}
    choice = c.post("/v1/chat/completions", chat_body("Give me json.", max_tokens=200, response_format=form)).json()["choices"][0]
    if choice["finish_reason"] == "stop":
        need(set(json.loads(choice["message"]["content"])) == set(schema["properties"]), choice)


def count_tokens(c):
    counted = c.post("/v1/messages/count_tokens", messages_body(c.story(200))).json()["input_tokens"]
    need(counted > 200, counted)
    ids = c.post("/v1/tokenize", {"prompt": c.story(20)}).json()["tokens"]
    c.post("/v1/detokenize", {"tokens": ids})


def packed(c):
    c.post("/v1/chat/completions", gzip.compress(json.dumps(chat_body(c.question(), max_tokens=8)).encode()), {"Content-Encoding": "gzip"})


def cancelled(c):
    """Leaves in the middle: with a word or without, from a stream or before a whole answer."""
    r = c.random
    path, body = r.choice([("/v1/completions", {"model": MODEL, "prompt": "Count.", "ignore_eos": True, "max_tokens": 1000}),
                           ("/v1/chat/completions", chat_body(c.question(), max_tokens=400)),
                           ("/v1/messages", messages_body(c.question(), max_tokens=400))])
    text = json.dumps(body | {"stream": r.random() < 0.7}).encode()
    with socket.create_connection(("127.0.0.1", c.port), timeout=120) as s:
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(text)) + text)
        s.settimeout(r.choice((0.01, 0.1, 0.4)))
        try:
            s.recv(200)
        except TimeoutError:
            pass
        if r.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def bad_requests(c):
    long = json.dumps(chat_body("a " * 300_000)).encode()
    for path, body, status in (("/v1/chat/completions", chat_body(temperature=5), 400), ("/v1/chat/completions", b"{", 400),
                               ("/v1/messages", {"model": MODEL}, 400), ("/v1/chat/completions", chat_body(model="other"), None),
                               ("/v1/chat/completions", b"[" * 5000, 400), ("/v1/nothing", {}, 404), ("/v1/chat/completions", long, 400),
                               ("/v1/responses", responses_body(previous_response_id="resp_nobody"), 400)):
        answer = c.ask("POST", path, body)
        need(answer.status == status or status is None and answer.status in (400, 404), path, answer.status, answer.body)
        need("error" in answer.json(), answer.body)
    with socket.create_connection(("127.0.0.1", c.port), timeout=120) as s:
        s.sendall(b"NONSENSE\r\n\r\n")
        need(b" 400 " in s.recv(4096).split(b"\r\n")[0], "malformed HTTP")


def watch(c):
    """What a monitor and a browser ask for."""
    need(b"fathom_server_open_requests" in c.ask("GET", "/metrics").body, "no metrics")
    for path in ("/health", "/ready", "/version", "/v1/models", "/"):
        need(c.ask("GET", path).status == 200, path)


KINDS = {chat: 5, chat_stream: 8, chat_thinking: 2, chat_long: 3, responses: 3, responses_stream: 4, conversation: 2, messages: 3,
         messages_stream: 4, completions_stream: 3, tools: 2, tools_messages: 1, json_schema: 2, count_tokens: 2, packed: 1,
         cancelled: 4, bad_requests: 2, watch: 2}  # and how often
