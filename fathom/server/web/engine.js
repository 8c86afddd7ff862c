// The live state of the engine: tiles, curves and bars from /metrics and /ready.
import { getJson } from "./api.js";
import { bar, Chart } from "./chart.js";
import { listen, quantile, rate, samples } from "./metrics.js";
import { element } from "./text.js";

const RATE_SECONDS = 3, LATENCY_SECONDS = 15, RATIO_SECONDS = 60;

export const count = (value) => Math.round(value).toLocaleString("en");
const short = (value) =>
  value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : value >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : value >= 100 ? count(value) : String(+value.toPrecision(2));
export const duration = (seconds) =>
  seconds < 0.0995 ? `${+(seconds * 1e3).toPrecision(2)} ms` : seconds < 0.9995 ? `${Math.round(seconds * 1e3)} ms` : seconds < 100 ? `${+seconds.toPrecision(3)} s` : `${count(seconds / 60)} min`;
export const percent = (ratio) => `${(100 * ratio).toFixed(ratio > 0 && ratio < 0.1 ? 1 : 0)} %`;

/** The newest sample that is at least so old as seen from sample `index`, or the oldest. */
function earlier(index, seconds) {
  let at = index;
  while (at > 0 && samples[at].time - samples[at - 1].time < 30 && samples[index].time - samples[at].time < seconds) --at;
  return samples[at];
}

const ratio = (part, whole) => (whole > 0 ? part / whole : null);

/** What the tiles and curves show, of one sample. */
function reading(index) {
  const now = samples[index];
  const close = earlier(index, RATE_SECONDS), far = earlier(index, LATENCY_SECONDS);
  const risen = (name, labels) => (close === now ? null : rate(close, now, name, labels));
  const gap = (q) => (now.has("fathom_engine_token_gap_seconds_count") ? quantile(far, now, "fathom_engine_token_gap_seconds", q) : quantile(far, now, "fathom_server_token_seconds", q));
  const first = (q) => quantile(far, now, now.has("fathom_engine_first_token_seconds_count") ? "fathom_engine_first_token_seconds" : "fathom_server_first_token_seconds", q);
  return {
    tokens: risen(now.has("fathom_engine_generated_tokens_total") ? "fathom_engine_generated_tokens_total" : "fathom_server_answer_tokens_total"),
    prompt: risen("fathom_engine_rows_total", { kind: "prompt" }),
    running: now.has("fathom_engine_requests") ? now.sum("fathom_engine_requests", { state: "running" }) : Math.max(0, now.ready.open_requests - now.ready.waiting_requests),
    waiting: now.has("fathom_engine_requests") ? now.sum("fathom_engine_requests", { state: "waiting" }) + now.sum("fathom_engine_requests", { state: "loading" }) : now.ready.waiting_requests,
    first50: first(0.5), first99: first(0.99), gap50: gap(0.5), gap99: gap(0.99),
  };
}

function curve(title, help, series, format, whole) {
  const legend = element("div", { class: "legend" });
  const chart = new Chart({ title, series, format, whole, onpoint: (point) => {
    const shown = point ?? chart.points.at(-1);
    legend.replaceChildren(...series.map((one, index) => {
      const value = shown?.values[index];
      return element("span", {}, element("i", { class: one.kind }), `${one.name} `, element("b", {}, value === null || value === undefined ? "–" : format(value)));
    }));
  } });
  return { chart, card: element("section", { class: "card", title: help }, element("div", { class: "card-head" }, element("h2", {}, title), legend), chart.svg) };
}

function tile(name) {
  const value = element("b", {}, "–"), note = element("small");
  return { box: element("div", { class: "tile" }, element("span", {}, name), value, note), set: (text, more = "") => ((value.textContent = text), (note.textContent = more)) };
}

const row = (name, parts, total, told) => element("div", {}, element("span", {}, name), bar(parts, total, `${name}: ${told}`), element("span", {}, told));

const MOST_ROWS = 32;

/** A table of what runs and waits, of /debug/state; asked only while it is looked at, and once if it is not served. */
function sequences() {
  const body = element("tbody");
  const head = ["request", "state", "age", "prompt", "from cache", "generated", "drafts"];
  const table = element("div", { class: "table", tabindex: "0" }, element("table", {}, element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))), body));
  const note = element("p", { class: "dim note" }, "Nothing runs.");
  const card = element("section", { class: "card wide-card" }, element("h2", {}, "Sequences"), table, note);
  let served = true, asking = false;
  table.hidden = true;
  const ask = async () => {
    if (!served || asking) return;
    asking = true;
    try {
      const engine = (await getJson("debug/state?steps=0")).engine?.engine;
      const rows = [...(engine?.running ?? []).map((s) => [s, s.in_prompt ? "reads its prompt" : "answers"]), ...(engine?.waiting ?? []).map((s) => [s, "waits"])];
      body.replaceChildren(...rows.slice(0, MOST_ROWS).map(([s, state]) => element("tr", {}, ...[s.id, state, duration(s.age_seconds ?? 0), count(s.prompt_tokens ?? 0), count(s.hit_tokens ?? 0), count(s.generated_tokens ?? 0), s.drafts ?? "–"].map((text) => element("td", {}, String(text))))));
      table.hidden = rows.length === 0;
      note.textContent = rows.length > MOST_ROWS ? `and ${count(rows.length - MOST_ROWS)} more` : rows.length ? "" : engine ? "Nothing runs." : "The engine is busy with a long step.";
    } catch (failure) {
      served = failure.status !== 404;
      note.textContent = served ? `${failure.title}.` : "Start the server with --debug-routes to see each one here.";
      table.hidden = true;
    }
    asking = false;
  };
  return { card, ask };
}

export function start(place) {
  const tiles = Object.fromEntries(["Tokens a second", "Running", "Waiting", "First token", "Drafts accepted", "Prompts from cache"].map((name) => [name, tile(name)]));
  const throughput = curve("Throughput", "Tokens a second over all requests", [{ name: "answers", kind: "k1", area: true }, { name: "prompts", kind: "k2" }], (v) => `${short(v)}/s`);
  const requests = curve("Requests", "What runs and what waits", [{ name: "running", kind: "k1", area: true }, { name: "waiting", kind: "k2" }], short, true);
  const first = curve("Time to the first token", "Over the last 15 seconds", [{ name: "half within", kind: "k1" }, { name: "99 % within", kind: "k2" }], duration);
  const gaps = curve("Time between tokens", "What a reader waits between two pieces of an answer, over the last 15 seconds", [{ name: "half within", kind: "k1" }, { name: "99 % within", kind: "k2" }], duration);
  const cache = element("div", { class: "bars" }), drafts = element("div", { class: "bars" });
  const each = sequences();
  const state = element("p", { class: "notice bad wide-card", role: "status", hidden: true });
  const foot = element("p", { class: "foot" });
  const key = (kind, name) => element("span", {}, element("i", { class: kind }), name);
  place.append(element("h1", { class: "unseen" }, "Engine"), element("div", { class: "board" },
    state,
    ...Object.values(tiles).map((one) => one.box), throughput.card, requests.card, first.card, gaps.card,
    element("section", { class: "card" }, element("div", { class: "card-head" }, element("h2", {}, "Cache"),
      element("div", { class: "legend" }, key("k1", "used"), key("k3", "kept for hits"))), cache),
    element("section", { class: "card" }, element("div", { class: "card-head" }, element("h2", {}, "Drafts accepted, by position"),
      element("div", { class: "legend" }, "last minute, or since the start")), drafts),
    each.card, foot));

  getJson("version").then((v) => foot.append(`fathom ${v.version} · ${v.model} · context ${count(v.context)} tokens · ${v.backend} · `), () => {})
    .finally(() => foot.append(element("a", { href: "metrics" }, "all metrics"), " · ", element("a", { href: "openapi.json" }, "the API")));

  listen((sample, failure) => {
    state.hidden = !failure && sample.ready.status === "ready";
    state.textContent = failure ? `${failure.title}. ${failure.text} The curves stand still.` : `Not ready: ${sample.ready.reason ?? "no reason given"}.`;
    if (!sample || place.hidden) return;
    show();
    each.ask();
  });

  function show() {
    const points = samples.map((sample, index) => ({ time: sample.time, is: reading(index) }));
    const last = samples.length - 1, now = samples[last], is = points[last].is;
    const draw = (one, ...names) => one.chart.draw(points.map(({ time, is }) => ({ time, values: names.map((name) => is[name]) })));
    draw(throughput, "tokens", "prompt");
    draw(requests, "running", "waiting");
    draw(first, "first50", "first99");
    draw(gaps, "gap50", "gap99");

    tiles["Tokens a second"].set(is.tokens === null ? "–" : short(is.tokens), `highest ${short(Math.max(...points.map((p) => p.is.tokens ?? 0)))}`);
    const slots = now.by("fathom_engine_slots", "state");
    tiles.Running.set(count(is.running), slots.size ? `of ${count((slots.get("used") ?? 0) + (slots.get("free") ?? 0))} at a time` : "");
    tiles.Waiting.set(count(is.waiting), now.ready.step_age_seconds !== null && is.running ? `last step ${duration(now.ready.step_age_seconds)} ago` : `${count(now.ready.steps)} steps so far`);
    const known = [...points].reverse().find((p) => p.is.first50 !== null);
    tiles["First token"].set(known ? duration(known.is.first50) : "–", known ? `99 % within ${duration(known.is.first99)}` : "no request yet");

    const from = earlier(last, RATIO_SECONDS);
    const rise = (name, labels) => {
      const recent = now.sum(name, labels) - from.sum(name, labels);
      return { recent, all: now.sum(name, labels) };
    };
    const shareOf = (part, whole) => {
      const recent = ratio(part.recent, whole.recent);
      return recent === null ? [ratio(part.all, whole.all), "since the start"] : [recent, "in the last minute"];
    };
    const fill = (name, [share, when]) => tiles[name].set(share === null ? "–" : percent(share), share === null ? "nothing yet" : when);
    fill("Drafts accepted", shareOf(rise("fathom_engine_drafts_accepted_total"), rise("fathom_engine_drafts_offered_total")));
    const cached = rise("fathom_server_cached_tokens_total"), prompts = rise("fathom_server_prompt_tokens_total");
    fill("Prompts from cache", shareOf(cached, prompts));

    const blocks = now.by("fathom_engine_blocks", "state");
    const used = blocks.get("used") ?? 0, idle = blocks.get("idle") ?? 0, total = used + idle + (blocks.get("free") ?? 0);
    const rows = [];
    if (total) rows.push(row("Blocks", [{ value: used, kind: "k1" }, { value: idle, kind: "k3" }], total, `${count(used + idle)} of ${count(total)}`));
    if (slots.size) {
      const all = (slots.get("used") ?? 0) + (slots.get("free") ?? 0);
      rows.push(row("Slots", [{ value: slots.get("used") ?? 0, kind: "k1" }], all, `${count(slots.get("used") ?? 0)} of ${count(all)}`));
    }
    const tiers = now.by("fathom_engine_prefix_hit_tokens_total", "tier");
    const most = Math.max(1, ...tiers.values());
    for (const [tier, value] of tiers) if (value > 0 || tier === "device") rows.push(row(`Hits, ${tier}`, [{ value, kind: "k3" }], most, `${short(value)} tokens`));
    cache.replaceChildren(...(rows.length ? rows : [element("span", { class: "dim" }, "This server does not tell its cache.")]));

    const positions = [...now.by("fathom_engine_drafts_offered_total", "position").keys()].filter((p) => now.sum("fathom_engine_drafts_offered_total", { position: p }) > 0);
    const bars = positions.map((position) => {
      const [share] = shareOf(rise("fathom_engine_drafts_accepted_total", { position }), rise("fathom_engine_drafts_offered_total", { position }));
      return row(`Draft ${position}`, [{ value: share, kind: "k1" }], 1, percent(share));
    });
    drafts.replaceChildren(...(bars.length ? bars : [element("span", { class: "dim" }, "No draft was verified yet.")]));
  }
  return show;
}
