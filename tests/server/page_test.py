"""The page at / in a real browser: Chromium without a window, driven through its debugging pipe by the standard library.

The browser's part is not in CI: FATHOM_CHROMIUM=chromium FATHOM_PROGRAM=build/release/fathom python3 -m unittest page_test runs it (in
tests/server); with FATHOM_SCREENSHOTS=DIR the pictures of docs/guides/web-page.md are written there.
"""
import base64
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from running_server import PROGRAM, ROOT, Server, environment

CHROMIUM = os.environ.get("FATHOM_CHROMIUM", "")
PICTURES = os.environ.get("FATHOM_SCREENSHOTS", "")
SECONDS = 20  # for anything that is waited for


class Browser:
    """One page of one Chromium. Messages are JSON, a zero byte behind each."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="fathom_page_")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                   "--disable-background-networking", f"--user-data-dir={self.folder}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", script, CHROMIUM, *options], pass_fds=(theirs_in, theirs_out),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in), os.close(theirs_out)
        self.read_from, self.write_to = ours_in, ours_out
        self.rest, self.number, self.session, self.troubles = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_from), os.close(self.write_to)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            answer = self.next_message(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def next_message(self, end):
        while b"\0" not in self.rest:
            if not select.select([self.read_from], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            part = os.read(self.read_from, 1 << 20)
            if not part:
                raise AssertionError("the browser ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.troubles.append(json.dumps(message["params"]["exceptionDetails"])[:500])
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.troubles.append(str(message["params"]["entry"].get("text")) + " " + str(message["params"]["entry"].get("url")))
        return message

    def run(self, script):
        """The value of an expression; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            value = self.run(f"(v => v instanceof Node || v)({script})")
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"never came true: {script}\n{self.run('document.body.innerText')}\n{self.troubles}")

    def screen(self, width, height, scale=1, dark=False, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.getElementById('ready')?.dataset.is === 'yes'")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, **more):
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, **more)

    def picture(self, name):
        if PICTURES:
            data = self.call("Page.captureScreenshot", format="png")["data"]
            Path(PICTURES, f"{name}.png").write_bytes(base64.b64decode(data))


class Load:
    """Clients that ask one question after the other; some questions share a long beginning, which the cache then knows."""

    def __init__(self, server, clients):
        self.server, self.ended = server, threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(number,)) for number in range(clients)]

    def client(self, number):
        story = " ".join(f"The {c} {t} is near the {p}." for c in ("blue", "red", "green") for t in ("cat", "box", "coin", "lamp") for p in ("piano", "whale", "river", "candle"))
        asked = 0
        while not self.ended.is_set():
            asked += 1
            text = f"{story} The secret number of castle is {1000 + asked}.\n\nWhat is the secret number of castle?" if number % 3 == 0 else f"What is {asked % 90 + 7} + {number * 7 + 13}?"
            self.server.chat(text, **({} if number % 3 == 0 else {"thinking": {"type": "enabled"}}))
            self.ended.wait(0.05 * (1 + (asked // 9 + number) % 5))

    def __enter__(self):
        [thread.start() for thread in self.threads]

    def __exit__(self, *_):
        self.ended.set()
        [thread.join() for thread in self.threads]


# The small model is done before anybody could stop it.
SLOWLY = """window.quickly = window.fetch, window.fetch = async (path, options) => {
  const got = await window.quickly(path, options);
  const transform = async (part, to) => (await new Promise(done => setTimeout(done, 400)), to.enqueue(part));
  return path.includes('chat') ? new Response(got.body.pipeThrough(new TransformStream({transform})), {status: got.status}) : got;
}, 0"""
IDLE = "!document.body.classList.contains('busy')"
LAST = "[...document.querySelectorAll('.assistant')].at(-1)"


@unittest.skipUnless(CHROMIUM, "FATHOM_CHROMIUM is not set")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--debug-routes")
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.server.end()

    def setUp(self):
        self.browser.troubles.clear()
        self.browser.screen(1280, 860)
        self.browser.go(self.server.url + "/")
        self.browser.run("sessionStorage.clear(), localStorage.clear()")
        self.browser.go(self.server.url + "/?fresh")

    def tearDown(self):
        self.assertEqual(self.browser.troubles, [])

    def ask(self, text):
        self.browser.run("document.getElementById('input').focus()")
        self.browser.type(text)
        self.browser.press("Enter")
        self.answer()

    def answer(self):
        self.browser.wait(f"{IDLE} && {LAST}?.querySelector('.meta .acts, .failure')")
        return self.browser.run(f"{LAST}.querySelector('.said').innerText")

    def test_the_three_examples_are_answered(self):
        wanted = ["82", "3681", "feather, hammer, insect, orange"]
        for index, text in enumerate(wanted):
            self.browser.picture("web-empty") if index == 0 else None
            self.browser.click(f".examples button:nth-child({index + 1})")
            self.assertIn(text, self.answer())
            if index < 2:
                self.browser.click("#new-chat")

    def test_a_conversation_by_keyboard_with_thoughts_folded_and_the_cost_told(self):
        self.ask("What is 37 + 45?")
        told = self.browser.run(f"{LAST}.innerText")
        self.assertIn("tokens/s", told)
        self.assertIn("of drafts accepted", told)
        self.assertFalse(self.browser.run(f"{LAST}.querySelector('.thought').open"))
        self.assertIn("30 + 40", self.browser.run(f"{LAST}.querySelector('.thought').textContent"))
        self.ask("Extract city, name as JSON: In Mumbai I met David, a engineer of 71 years.")
        self.assertEqual(self.browser.run(f"{LAST}.querySelector('.j-text').textContent"), '"Mumbai"')
        self.ask("Python one-liner to multiply x by 11 and add 10:")
        self.assertIn("x * 11 + 10", self.browser.run(f"{LAST}.querySelector('pre').textContent"))
        self.browser.run("document.querySelector('.thought').open = true, document.getElementById('scroll').scrollTop = 0")
        self.browser.picture("web-chat-light")
        self.browser.screen(1280, 860, dark=True)
        self.browser.picture("web-chat-dark")
        self.browser.screen(390, 844, scale=1.5, touch=True)
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 390)
        self.browser.picture("web-phone")

    def test_everything_can_be_reached_and_done_with_the_keyboard_alone(self):
        here = "document.activeElement.id || document.activeElement.className"
        self.browser.run("document.activeElement.blur()")
        self.browser.press("Tab")
        self.assertEqual(self.browser.run(here), "skip")
        self.browser.press("Enter")  # skips to the message field
        self.assertEqual(self.browser.run(here), "input")
        self.browser.type("Symbol for phosphorus?")
        self.browser.press("Enter")
        self.assertIn("P", self.answer())
        # Round and round: every control that is shown has its turn, and the place that has the focus is drawn.
        self.browser.run("document.activeElement.blur()")
        reached = set()
        for _ in range(40):
            self.browser.press("Tab")
            reached.add(self.browser.run(here))
            self.assertTrue(self.browser.run("document.activeElement === document.body || document.activeElement.matches(':focus-visible')"))
        self.assertLessEqual({"tab-chat", "new-chat", "settings-button", "input", "attach", "effort", "send"}, reached)
        self.browser.run("document.getElementById('settings-button').focus()")
        self.browser.press("Enter")
        self.assertEqual(self.browser.run(here), "settings-close")
        self.browser.press("Escape")
        self.assertEqual(self.browser.run(here), "settings-button")
        self.browser.run("document.getElementById('tab-chat').focus()")
        self.browser.press("ArrowRight")
        self.assertEqual(self.browser.run(here), "tab-engine")
        self.assertEqual(self.browser.run("location.hash"), "#engine")

    def test_in_the_dark_the_page_is_dark_and_its_text_can_be_read(self):
        luminance = """(selector, what) => {
          let color = 'rgba(0, 0, 0, 0)';
          for (let e = document.querySelector(selector); e && / 0\\)$/.test(color); e = what === 'color' ? null : e.parentElement)
            color = getComputedStyle(e)[what];
          const [r, g, b] = color.match(/[0-9.]+/g).map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        }"""
        for dark in (False, True):
            self.browser.screen(1280, 860, dark=dark)
            page = self.browser.run(f"({luminance})('body', 'backgroundColor')")
            self.assertTrue(page < 0.05 if dark else page > 0.8, page)
            for selector in ("h1", "#empty-text", ".examples button strong", ".examples button span", ".hint", "#settings-button"):
                text, ground = (self.browser.run(f"({luminance})({json.dumps(selector)}, '{what}')") for what in ("color", "backgroundColor"))
                contrast = (max(text, ground) + 0.05) / (min(text, ground) + 0.05)
                self.assertGreater(contrast, 4.5, f"{selector}, dark: {dark}")  # WCAG 2.2, 1.4.3

    def test_on_a_phone_nothing_is_wider_than_the_screen_and_all_is_large_enough_for_a_finger(self):
        self.browser.screen(360, 740, scale=2, touch=True)
        self.browser.click(".examples button")
        self.answer()
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)
        for name in ("tab-engine", "settings-button", "send", "attach"):
            box = self.browser.run(f"(r => [r.left, r.right, r.width, r.height])(document.getElementById('{name}').getBoundingClientRect())")
            self.assertGreaterEqual(box[0], 0, name)
            self.assertLessEqual(box[1], 360, name)
            self.assertGreaterEqual(min(box[2:]), 24, name)  # WCAG 2.2, 2.5.8
        self.browser.click("#settings-button")
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)
        self.browser.click("#settings-close")
        self.browser.click("#tab-engine")
        self.browser.wait("document.querySelectorAll('.tile').length > 0")
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 360)

    def test_a_call_gets_its_result_from_the_user(self):
        self.browser.click("#settings-button")
        self.browser.click("#tools-example")
        self.browser.press("Escape")
        self.assertTrue(self.browser.run("document.getElementById('settings').hidden"))
        self.ask("What is the weather in Cairo for 3 days?")
        self.assertIn("Cairo", self.browser.run("document.querySelector('.call').innerText"))
        self.browser.picture("web-call")
        self.browser.run("document.querySelector('.call textarea').value = '{\"weather\": \"windy\", \"temperature\": 35}'")
        self.browser.click(".call .row button")
        self.browser.wait("document.querySelectorAll('.assistant').length === 2")
        self.assertIn("windy", self.answer())

    def test_text_never_becomes_markup(self):
        text = "Copy this text: <img src=x onerror=alert(1)> **olive**"
        self.ask(text)
        self.assertEqual(self.browser.run("document.querySelector('.user .said').textContent"), text)
        self.assertEqual(self.browser.run("document.querySelectorAll('.messages img').length"), 0)

    def test_an_image_is_not_sent_to_a_model_without_vision(self):
        root = self.browser.call("DOM.getDocument")["root"]["nodeId"]
        node = self.browser.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        pixel = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            file.write(pixel), file.flush()
            self.browser.call("DOM.setFileInputFiles", nodeId=node, files=[file.name])
            self.browser.wait("!document.getElementById('attached').hidden")
        self.assertIn("no vision", self.browser.run("document.getElementById('notice').innerText"))
        self.browser.click("#send")
        self.assertEqual(self.browser.run("document.querySelectorAll('.message').length"), 0)

    def test_a_reload_keeps_the_conversation_and_new_begins_another(self):
        self.ask("Symbol for phosphorus?")
        self.browser.go(self.server.url + "/?again")
        self.assertEqual(self.browser.run("document.querySelectorAll('.message').length"), 2)
        self.browser.click("#new-chat")
        self.assertFalse(self.browser.run("document.getElementById('empty').hidden"))

    def test_a_request_that_the_server_refuses_is_told_in_words(self):
        self.browser.click("#settings-button")
        self.browser.run("(f => (f.elements.max_tokens.value = 99999999, f.dispatchEvent(new Event('input'))))(document.getElementById('settings-form'))")
        self.browser.press("Escape")
        self.ask("Hi")
        self.assertIn("did not take this request", self.browser.run("document.querySelector('.failure').innerText"))
        self.browser.troubles.clear()  # browsers log every 400

    def test_an_answer_can_be_stopped_and_asked_for_again(self):
        self.browser.run("(e => (e.value = 'none', e.dispatchEvent(new Event('change'))))(document.getElementById('effort'))")
        self.browser.run(SLOWLY)
        self.browser.run("document.getElementById('input').focus()")
        self.browser.type("Copy this text: " + "beach olive castle orange anchor saddle " * 6)
        self.browser.press("Enter")
        self.browser.wait(f"{LAST}?.querySelector('.said').innerText.length > 5")
        self.browser.press("Escape")
        self.answer()
        self.browser.run("window.fetch = window.quickly, 0")
        self.assertIn("Stopped", self.browser.run(f"{LAST}.innerText"))
        self.browser.run(f"[...{LAST}.querySelectorAll('.acts button')].find(b => b.innerText === 'Again').click()")
        self.assertIn("beach olive", self.answer())

    def test_a_server_that_is_gone_is_told_and_can_be_asked_again(self):
        self.browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        self.ask("Symbol for phosphorus?")
        self.assertIn("cannot be reached", self.browser.run("document.querySelector('.failure').innerText"))
        self.browser.picture("web-failure")
        self.browser.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        self.browser.click(".failure button")
        self.assertIn("P", self.answer())
        self.browser.troubles.clear()  # browsers log what did not load

    def test_the_engine_tab_shows_what_runs(self):
        for text in ("What is 37 + 45?", "What is 3 * 8?", "Sort these words alphabetically: zebra, robot, olive, onion"):
            self.ask(text)
        self.browser.run("document.getElementById('tab-chat').focus()")
        self.browser.press("ArrowRight")
        self.assertFalse(self.browser.run("document.getElementById('engine').hidden"))
        self.browser.wait("document.querySelectorAll('.chart path').length > 0")
        with Load(self.server, clients=10):
            time.sleep(40 if PICTURES else 3)
            self.browser.wait("document.querySelectorAll('.card tbody tr').length > 0")
            self.browser.run("document.activeElement.blur()")
            self.engine_pictures()

    def engine_pictures(self):
        tiles = self.browser.wait("document.querySelector('.tile b').innerText !== '–' && document.querySelector('.board').innerText")
        self.assertIn("Tokens a second", tiles)
        self.assertNotIn("nothing yet", tiles)
        self.browser.picture("web-engine-light")
        self.browser.screen(1280, 860, dark=True)
        self.browser.picture("web-engine-dark")
        self.browser.screen(390, 844, touch=True)
        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 390)
        self.browser.picture("web-engine-phone")


@unittest.skipUnless(CHROMIUM, "FATHOM_CHROMIUM is not set")
class PageWhileLoading(unittest.TestCase):
    def test_the_page_is_there_while_the_model_loads_and_says_so(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Its weights take some seconds to make.
        process = subprocess.Popen([PROGRAM, "serve", "--listen", f"127.0.0.1:{port}", "--model", "synthetic:flash-slice,layers=2+2,experts=32,engram-vocab=4000"],
                                   env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        browser = Browser()
        try:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.01)
            browser.screen(1280, 860)
            browser.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
            browser.wait("document.getElementById('ready')?.dataset.is === 'no' && document.getElementById('ready').innerText.includes('the model is loading')")
            browser.wait("document.getElementById('notice').innerText.includes('goes on by itself')")
            self.assertFalse(browser.run("document.getElementById('notice').classList.contains('bad')"))
        finally:
            browser.close()
            process.terminate()
            process.wait(SECONDS)


@unittest.skipUnless(CHROMIUM, "FATHOM_CHROMIUM is not set")
class PageWithKey(unittest.TestCase):
    def test_the_page_asks_for_the_key_and_keeps_it_in_the_tab(self):
        server, browser = Server(env={"FATHOM_API_KEYS": "sk-page-0123456789"}), Browser()
        try:
            browser.screen(1280, 860)
            browser.go(server.url + "/")
            browser.wait("document.getElementById('key-dialog').open")
            browser.picture("web-key")
            browser.run("document.getElementById('key').focus()")
            browser.type("sk-page-0123456789")
            browser.press("Enter")
            browser.wait("document.getElementById('model').innerText !== ''")
            self.assertEqual(browser.run("JSON.stringify([Object.keys(sessionStorage).includes('fathom.key'), Object.keys(localStorage).includes('fathom.key')])"), "[true,false]")
            browser.click(".examples button")
            browser.wait(f"{IDLE} && {LAST}?.querySelector('.meta .acts')")
        finally:
            browser.close()
            server.end()


class Files(unittest.TestCase):
    def test_no_web_serves_no_page_and_without_it_there_is_one(self):
        for options, status in ((["--no-web"], 404), ([], 200)):
            server = Server(*options)
            try:
                self.assertEqual(server.get("/").status, status)
                self.assertEqual(server.get("/health").status, 200)
            finally:
                server.end()

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_the_scripts_have_no_error_of_syntax(self):
        for script in sorted((ROOT / "fathom/server/web").glob("*.js")):
            done = subprocess.run(["node", "--input-type=module", "--check", "-"], input=script.read_text(encoding="utf-8"), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{script.name}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
