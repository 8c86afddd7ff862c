// The conversation: what was said, how it is shown, and the answer that is on its way.
import { chat, Failure } from "./api.js";
import { count, duration, percent } from "./engine.js";
import { hurry, latest, listen, rate } from "./metrics.js";
import * as settings from "./settings.js";
import { blocks, code, copyButton, element, json, jsonOf } from "./text.js";

const $ = (id) => document.getElementById(id);
const PLACE = "fathom.chat";  // of this tab: a reload keeps the conversation
const LONG = 900;             // characters of a question that is folded

let model = { id: "" };
/** {role, content, images?} | {role: "assistant", content, reasoning, calls, state, receipt, usage, failure} | {role: "tool", id, name, content} */
let said = [];
let running = null;  // {controller, message, view, begun, first}
let needKey = () => {};

export const isRunning = () => running !== null;
export const isEmpty = () => said.length === 0;
export const isOpen = () => model.id !== "";
export const seesImages = () => model.input_modalities?.includes("image") ?? false;  // no model of today does

export function open(of, onKey) {
  model = of;
  needKey = onKey;
}

export function restore() {
  try {
    said = JSON.parse(sessionStorage.getItem(PLACE) ?? "[]");
  } catch {
    said = [];
  }
  for (const message of said) if (message.state === "running") message.state = "stopped";
  showAll();
}

function keep() {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(said.map(({ images, ...rest }) => rest)));
  } catch {
    sessionStorage.removeItem(PLACE);  // too long to keep: a reload loses it
  }
}

export function clear() {
  stop();
  said = [];
  keep();
  showAll();
}

export function ask(text, images = []) {
  said.push({ role: "user", content: text, images });
  answer();
}

export function stop() {
  running?.controller.abort();
}

// ---------------------------------------------------------------- what is sent

function toApi(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.id, content: message.content };
  if (message.role === "user") {
    if (!message.images?.length) return { role: "user", content: message.content };
    const parts = message.images.map((url) => ({ type: "image_url", image_url: { url } }));
    return { role: "user", content: [...parts, { type: "text", text: message.content }] };
  }
  const sent = { role: "assistant", content: message.content };
  if (message.reasoning) sent.reasoning_content = message.reasoning;
  if (message.calls.length) sent.tool_calls = message.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
  return sent;
}

function history() {
  const system = settings.system();
  // An answer that failed before its first word is no part of the conversation.
  const messages = said.filter((m) => m.role !== "assistant" || m.content || m.calls.length).map(toApi);
  return system ? [{ role: "system", content: system }, ...messages] : messages;
}

async function answer() {
  const body = { model: model.id, messages: history(), stream: true, stream_options: { include_usage: true }, ...settings.members() };
  const message = { role: "assistant", content: "", reasoning: "", calls: [], state: "running" };
  said.push(message);
  showAll();
  const view = $("messages").lastElementChild;
  running = { controller: new AbortController(), message, view, begun: performance.now(), first: 0, meter: null };
  document.body.classList.add("busy");
  $("send").setAttribute("aria-label", "Stop the answer");
  $("announce").textContent = "The model is answering.";
  const calm = hurry();
  let due = 0;
  try {
    for await (const event of chat(body, running.controller.signal)) {
      take(message, event);
      if (!due) due = requestAnimationFrame(() => ((due = 0), fill(view, message), follow()));
    }
    message.state = "done";
  } catch (problem) {
    message.state = problem.name === "AbortError" ? "stopped" : "failed";
    if (message.state === "failed") {
      const failure = problem instanceof Failure ? problem : new Failure("The page could not read the answer", String(problem.message ?? problem));
      message.failure = { title: failure.title, text: failure.text, status: failure.status };
      if (failure.status === 401) needKey();
    }
  }
  calm();
  cancelAnimationFrame(due);
  message.ms = performance.now() - running.begun;
  running = null;
  document.body.classList.remove("busy");
  $("send").setAttribute("aria-label", "Send");
  $("live").textContent = "";
  $("announce").textContent = { done: "The answer is complete.", stopped: "Stopped." }[message.state] ?? message.failure.title;
  fill(view, message);
  follow();
  keep();
}

function take(message, event) {
  if (event.usage) message.usage = event.usage;
  if (event.fathom) message.receipt = event.fathom;
  const choice = event.choices?.[0];
  if (!choice) return;
  if (choice.finish_reason) message.finish = choice.finish_reason;
  const delta = choice.delta ?? {};
  if (!running.first && (delta.content || delta.reasoning_content || delta.tool_calls)) running.first = performance.now();
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? "";
  for (const part of delta.tool_calls ?? []) {
    const call = (message.calls[part.index] ??= { id: "", name: "", arguments: "" });
    if (part.id) call.id = part.id;
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
}

// The meter counts for the whole engine; with one request in it that is this answer. The receipt tells the rest.
listen((sample) => {
  if (!sample || !running) return;
  const from = (running.meter ??= sample);
  const seconds = Math.round((performance.now() - running.begun) / 1000);
  const tokens = rate(from, sample, "fathom_engine_generated_tokens_total");
  const rise = (name) => sample.sum(name) - from.sum(name);
  const offered = rise("fathom_engine_drafts_offered_total");
  const parts = [seconds >= 1 ? `${seconds} s` : "", tokens > 0 ? `${count(tokens)} tokens/s` : running.first ? "" : "reading the prompt",
    offered > 0 ? `${percent(rise("fathom_engine_drafts_accepted_total") / offered)} of drafts` : ""];
  $("live").textContent = parts.filter(Boolean).join(" · ");
  $("live").title = latest()?.sum("fathom_engine_requests", { state: "running" }) > 1 ? "Of all running requests together" : "Of this answer";
});

// ---------------------------------------------------------------- how it is shown

function showAll() {
  $("empty").hidden = said.length > 0;
  $("messages").replaceChildren(...said.map(viewOf));
  follow(true);
}

const views = new WeakMap();  // of messages: what the reader unfolded stays so

function viewOf(message) {
  if (!views.has(message)) views.set(message, newView(message));
  else if (message.role === "assistant") fill(views.get(message), message);
  return views.get(message);
}

function newView(message) {
  if (message.role === "user") return userView(message);
  if (message.role === "tool") {
    const value = jsonOf(message.content);
    return element("details", { class: "message tool" }, element("summary", {}, "Result of ", element("code", {}, message.name)),
      value === undefined ? code(message.content, "text") : json(value));
  }
  const view = element("article", { class: "message assistant", "aria-label": "Answer" },
    element("details", { class: "thought", hidden: true }, element("summary", {}), element("div", {})),
    element("div", { class: "said" }), element("div", { class: "calls" }), element("div", { class: "meta" }), element("div", { class: "trouble" }));
  fill(view, message);
  return view;
}

function userView(message) {
  const folded = message.content.length > LONG;
  const view = element("article", { class: `message user${folded ? " long" : ""}`, "aria-label": "You" },
    ...(message.images ?? []).map((url) => element("img", { src: url, alt: "Attached image" })), element("div", { class: "said" }, message.content));
  if (folded) {
    view.append(element("button", { type: "button", class: "plain small more", "aria-expanded": "false", onclick: (event) => {
      const open = !view.classList.toggle("long");
      event.target.textContent = open ? "Show less" : "Show all";
      event.target.setAttribute("aria-expanded", String(open));
    } }, "Show all"));
  }
  return view;
}

function fill(view, message) {
  const [thought, text, calls, meta, trouble] = view.children;
  const working = message.state === "running";
  view.classList.toggle("working", working);
  thought.hidden = !message.reasoning;
  if (message.reasoning) {
    const thinking = working && !message.content && !message.calls.length;
    thought.firstChild.textContent = thinking ? "Thinking…" : thoughtTitle(message);
    thought.lastChild.textContent = message.reasoning.trim();
  }
  const value = working ? undefined : jsonOf(message.content);
  text.replaceChildren(...(value === undefined ? blocks(message.content) : [json(value)]));
  calls.replaceChildren(...message.calls.map((call, index) => callView(message, call, index)));
  if (!working) {
    meta.replaceChildren(...metaOf(message));
    trouble.replaceChildren(...troubleOf(message));
  }
}

function thoughtTitle(message) {
  const tokens = message.usage?.completion_tokens_details?.reasoning_tokens;
  return tokens ? `Thought, ${count(tokens)} tokens` : "Thought";
}

function callView(message, call, index) {
  const value = jsonOf(call.arguments);
  const view = element("section", { class: "call", "aria-label": `Call of ${call.name}` },
    element("div", { class: "call-head" }, "calls", element("code", {}, call.name)),
    value === undefined ? code(call.arguments || "…", "arguments") : json(value, "arguments"));
  const open = message.state === "done" && said.at(-1) === message && call.result === undefined;
  if (open) {
    const name = `result-${said.length}-${index}`;
    const field = element("textarea", { id: name, rows: 2, placeholder: '{"weather": "sunny", "temperature": 24}', spellcheck: "false" });
    view.append(element("label", { class: "unseen", for: name }, `Result of ${call.name}`), field,
      element("div", { class: "row" }, element("button", { type: "button", class: "plain", onclick: () => {
        call.result = field.value.trim() || field.placeholder;
        if (message.calls.every((each) => each.result !== undefined)) {
          for (const each of message.calls) said.push({ role: "tool", id: each.id, name: each.name, content: each.result });
          answer();
        } else {
          view.replaceWith(callView(message, call, index));
        }
      } }, "Give this result")));
  }
  return view;
}

function metaOf(message) {
  const receipt = message.receipt, usage = message.usage;
  const bill = receipt ? element("div", { class: "bill", hidden: true }, json(receipt, "what this answer cost")) : null;
  const acts = element("span", { class: "acts" }, message.content ? copyButton(() => message.content) : null,
    said.at(-1) === message ? element("button", { type: "button", class: "plain small", title: "Ask for this answer once more", onclick: again }, "Again") : null,
    bill ? element("button", { type: "button", class: "plain small", "aria-expanded": "false", title: "All that is known of its cost", onclick: (event) => {
      bill.hidden = !bill.hidden;
      event.target.setAttribute("aria-expanded", String(!bill.hidden));
    } }, "Receipt") : null);
  const items = [];
  const item = (value, name, title) => items.push(element("span", { title }, element("b", {}, value), ` ${name}`));
  if (message.state === "stopped") items.push(element("span", {}, "Stopped"));
  if (message.finish === "length") items.push(element("span", {}, "Ended at the longest answer that was allowed"));
  if (usage) item(count(usage.completion_tokens), "tokens", "Generated, with the thoughts");
  if (receipt) {
    const seconds = (receipt.total_ms - receipt.first_token_ms) / 1000;
    if (receipt.generated_tokens > 1 && seconds > 0) item(count((receipt.generated_tokens - 1) / seconds), "tokens/s", "After the first token");
    item(duration(receipt.first_token_ms / 1000), "to the first", "From the request to the first token");
    const total = (list) => list.reduce((a, b) => a + b, 0);
    if (total(receipt.drafts_offered)) item(percent(total(receipt.drafts_accepted) / total(receipt.drafts_offered)), "of drafts accepted", `${total(receipt.drafts_accepted)} of ${total(receipt.drafts_offered)}, in ${receipt.rounds} rounds`);
    if (receipt.prompt_tokens) item(percent(receipt.cached_tokens / receipt.prompt_tokens), "of the prompt cached", `${count(receipt.cached_tokens)} of ${count(receipt.prompt_tokens)} tokens were known already`);
  }
  if (message.state === "failed" && !items.length) return [];
  return bill ? [...items, acts, bill] : [...items, acts];
}

function troubleOf(message) {
  if (!message.failure) return [];
  return [element("div", { class: "failure", role: "alert" }, element("strong", {}, message.failure.title), message.failure.text,
    said.at(-1) === message ? element("div", { class: "row" }, element("button", { type: "button", class: "plain", onclick: again }, "Try again")) : null)];
}

function again() {
  if (running) return;
  if (said.at(-1)?.role === "assistant") said.pop();
  answer();
}

// The newest text stays in sight as long as the reader did not scroll away from it.
let pinned = true;
const scroll = $("scroll");
scroll.addEventListener("scroll", () => {
  pinned = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 90;
  $("down").hidden = pinned || isEmpty();
});
$("down").addEventListener("click", () => follow(true));

function follow(always = false) {
  if (always) pinned = true;
  if (pinned) scroll.scrollTop = isEmpty() ? 0 : scroll.scrollHeight;
}
