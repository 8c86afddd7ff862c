// The frame of the page: tabs, the message field, images, the key, the state of the server.
import { getJson, key } from "./api.js";
import * as conversation from "./chat.js";
import { start as startEngine } from "./engine.js";
import { listen, samples, watch } from "./metrics.js";
import * as settings from "./settings.js";
import { element } from "./text.js";

const $ = (id) => document.getElementById(id);
const MOST_IMAGES = 8, MOST_IMAGE_BYTES = 20 << 20;

const STORY = "There is a parrot behind the bottle. Leo went to Cairo in the evening. It was cloudy in Rome. Nina went to Cairo in the winter. There is a quartz behind the frost. There is a flower behind the turtle. It was sunny in Toronto. It was foggy in Dublin. It was snowy in Dublin. The secret number of castle is 3681. Wendy went to Vienna in the winter. Rosa works as a lawyer and likes purple. Henry works as a engineer and likes purple. Bob works as a painter and likes purple. David went to Dublin in the summer. The blue ball is near the candle. Paula works as a pilot and likes orange. The red cat is near the insect. It was rainy in Toronto. There is a piano behind the novel. Oscar went to Lisbon in the evening. The green box is near the bottle. There is a orange behind the needle. Maria went to Boston in the evening. Leo went to Vienna in the morning. Emma went to Mumbai in the winter. Henry went to Mumbai in the summer. There is a rocket behind the acorn. The purple coin is near the cloud. Irene went to Paris in the summer.";
const EXAMPLES = [
  { title: "Work out a sum", prompt: "What is 37 + 45?", effort: "high" },
  { title: "Find a fact in a text", prompt: `${STORY}\n\nWhat is the secret number of castle?`, shown: "“… The secret number of castle is 3681 …” What is the secret number of castle?", effort: "none" },
  { title: "Sort some words", prompt: "Sort these words alphabetically: insect, orange, feather, hammer", effort: "none" },
];

// ---------------------------------------------------------------- tabs

const tabs = ["chat", "engine"];
let unwatch = null;
const showEngine = startEngine($("engine"));

function show(name, focus = false) {
  for (const each of tabs) {
    const chosen = each === name, tab = $(`tab-${each}`);
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    $(each).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  unwatch?.();
  unwatch = name === "engine" ? watch() : null;
  if (name === "engine" && samples.length) showEngine();
  $("new-chat").hidden = name !== "chat";
  history.replaceState(null, "", name === "chat" ? location.pathname : `#${name}`);
  document.title = name === "chat" ? "fathom" : "fathom: engine";
}

for (const name of tabs) {
  $(`tab-${name}`).addEventListener("click", () => show(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) show(tabs[(tabs.indexOf(name) + step + tabs.length) % tabs.length], true);
  });
}

// ---------------------------------------------------------------- the message field

const input = $("input");
let images = [];

function fit() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

function notice(text, bad = false) {
  $("notice").textContent = text;
  $("notice").classList.toggle("bad", bad);
  $("notice").hidden = !text;
}

function showImages() {
  $("attached").hidden = images.length === 0;
  $("attached").replaceChildren(...images.map((image, index) => element("figure", {}, element("img", { src: image.url, alt: image.name }),
    element("button", { type: "button", "aria-label": `Remove ${image.name}`, onclick: () => {
      images.splice(index, 1);
      showImages();
      input.focus();
    } }, "×"))));
  notice(images.length && !conversation.seesImages() ? "This model has no vision: it cannot see images. Remove the image and describe it in words to go on." : "");
}

function addFiles(files) {
  for (const file of files) {
    if (!file.type.startsWith("image/")) {
      notice(`${file.name} is no image. Paste its text instead.`, true);
    } else if (file.size > MOST_IMAGE_BYTES || images.length >= MOST_IMAGES) {
      notice(`${file.name} was left out: at most ${MOST_IMAGES} images of 20 MB each.`, true);
    } else {
      const reader = new FileReader();
      reader.onload = () => (images.push({ name: file.name, url: reader.result }), showImages());
      reader.readAsDataURL(file);
    }
  }
}

function send(event) {
  event?.preventDefault();
  if (conversation.isRunning()) return event?.submitter || event?.type === "submit" ? conversation.stop() : undefined;
  const text = input.value.trim();
  if (!text && !images.length) return input.focus();
  if (!conversation.isOpen()) return connect();
  if (images.length && !conversation.seesImages()) return showImages();
  if (settings.mistake()) return notice(`${settings.mistake()} See Settings.`, true);
  notice("");
  conversation.ask(text, images.map((image) => image.url));
  input.value = "";
  images = [];
  showImages();
  fit();
}

$("composer").addEventListener("submit", send);
input.addEventListener("input", fit);
input.addEventListener("keydown", (event) => {
  // On a phone the return key makes a line; the button sends.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  if (!conversation.isRunning()) send();
});
$("attach").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => (addFiles($("file").files), ($("file").value = "")));
input.addEventListener("paste", (event) => event.clipboardData.files.length && (event.preventDefault(), addFiles(event.clipboardData.files)));
$("chat").addEventListener("dragover", (event) => event.preventDefault());
$("chat").addEventListener("drop", (event) => (event.preventDefault(), addFiles(event.dataTransfer.files)));
$("new-chat").addEventListener("click", () => (conversation.clear(), notice(""), input.focus()));

$("examples").append(...EXAMPLES.map((example) => element("button", { type: "button", onclick: () => {
  if (!conversation.isOpen()) return connect();
  settings.setEffort(example.effort);
  conversation.ask(example.prompt);
  input.focus();
} }, element("strong", {}, example.title), element("span", {}, example.shown ?? example.prompt))));

// ---------------------------------------------------------------- settings

function showSettings(open) {
  $("settings").hidden = !open;
  $("settings-button").setAttribute("aria-expanded", String(open));
  (open ? $("settings-close") : $("settings-button")).focus();
}
$("settings-button").addEventListener("click", () => showSettings($("settings").hidden));
$("settings-close").addEventListener("click", () => showSettings(false));

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || $("key-dialog").open) return;
  if (!$("settings").hidden) return showSettings(false);
  conversation.stop();
});

// ---------------------------------------------------------------- the key and the model

function askKey() {
  $("key-button").hidden = false;
  $("key-title").textContent = key.get() ? "The server does not know this key" : "This server asks for a key";
  $("key").value = "";
  if (!$("key-dialog").open) $("key-dialog").showModal();
}
$("key-button").addEventListener("click", askKey);
$("key-cancel").addEventListener("click", () => $("key-dialog").close());
$("key-form").addEventListener("submit", () => {
  key.set($("key").value.trim());
  connect();
});

let waiting = false;  // for a server that does not answer yet

async function connect() {
  try {
    const models = (await getJson("v1/models")).data;
    conversation.open(models[0], askKey);
    $("model").textContent = models[0].id;
    $("empty-text").textContent = `${models[0].id} answers here. This page talks to this server only.`;
    $("key-button").hidden = !key.get();
    if (waiting) notice("");
    waiting = false;
  } catch (failure) {
    if (failure.status === 401) return askKey();
    waiting = true;
    const loading = failure.status === 503;
    notice(loading ? "The server is not ready yet: its model may still be loading. This page goes on by itself when it is." : `${failure.title}. ${failure.text}`, !loading);
    setTimeout(connect, 3000);
  }
}

listen((sample, failure) => {
  const ready = sample?.ready.status === "ready";
  $("ready").dataset.is = ready ? "yes" : "no";
  const text = failure ? "not reachable" : ready ? "ready" : (sample.ready.reason ?? "not ready");
  if ($("ready").lastElementChild.textContent !== text) $("ready").lastElementChild.textContent = text;
  $("ready").title = failure ? failure.text : ready ? "The server takes requests" : text;
});

conversation.restore();
show(location.hash === "#engine" ? "engine" : "chat");
connect();
fit();
if (matchMedia("(pointer: fine)").matches) input.focus({ preventScroll: true });
