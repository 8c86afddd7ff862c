// The engine's metrics as they stand, sample by sample. One reader for the whole page: it asks every second while somebody
// looks, every half second while an answer comes, else every five, and not at all while the page is hidden.
import { getJson, getText } from "./api.js";

const KEPT = 300;  // samples
const INFINITE = Infinity;

/** Prometheus text to a Map of name -> [{labels, value}]. */
export function parse(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    const found = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    const value = found[3] === "+Inf" ? INFINITE : Number(found[3]);
    if (!families.has(found[1])) families.set(found[1], []);
    families.get(found[1]).push({ labels, value });
  }
  return families;
}

export class Sample {
  constructor(families, ready, time) {
    Object.assign(this, { families, ready, time });
  }
  has(name) {
    return this.families.has(name);
  }
  /** The sum of a family over the rows with these labels. */
  sum(name, labels = {}) {
    let total = 0;
    for (const row of this.families.get(name) ?? []) {
      if (Object.entries(labels).every(([key, value]) => row.labels[key] === value)) total += row.value;
    }
    return total;
  }
  /** The values of a family by one label, in order of appearance. */
  by(name, label) {
    const values = new Map();
    for (const row of this.families.get(name) ?? []) {
      values.set(row.labels[label], (values.get(row.labels[label]) ?? 0) + row.value);
    }
    return values;
  }
}

export const samples = [];
const listeners = new Set();
let watchers = 0, hurries = 0, timer = 0, asking = false;

export const watch = () => (++watchers, schedule(0), () => (--watchers, undefined));
export const hurry = () => (++hurries, schedule(0), () => (--hurries, undefined));
/** `listener(sample or null, failure)` after each reading. */
export const listen = (listener) => listeners.add(listener);
export const latest = () => samples.at(-1);

function schedule(delay) {
  clearTimeout(timer);
  timer = setTimeout(read, delay);
}

async function read() {
  if (asking || document.hidden) return;
  asking = true;
  try {
    // While the model loads there are no metrics (503, in which no line of them is found), but /ready says why.
    const [text, ready] = await Promise.all([getText("metrics", [503]), getJson("ready", [503])]);
    const sample = new Sample(parse(text), ready, performance.now() / 1000);
    samples.push(sample);
    if (samples.length > KEPT) samples.shift();
    for (const listener of listeners) listener(sample, null);
  } catch (failure) {
    for (const listener of listeners) listener(null, failure);
  }
  asking = false;
  schedule(hurries ? 500 : watchers ? 1000 : 5000);
}

document.addEventListener("visibilitychange", () => !document.hidden && schedule(0));
schedule(0);

/** What a counter rose by in each second between two samples. A restart counts as nothing. */
export function rate(from, to, name, labels) {
  const seconds = to.time - from.time;
  return seconds > 0 ? Math.max(0, to.sum(name, labels) - from.sum(name, labels)) / seconds : 0;
}

/** A quantile of a histogram between two samples, or null when nothing was observed; linear inside a bucket. */
export function quantile(from, to, name, q) {
  const before = from.by(`${name}_bucket`, "le");
  const rows = [...to.by(`${name}_bucket`, "le")].map(([le, count]) => [le === "+Inf" ? INFINITE : Number(le), count - (before.get(le) ?? 0)]);
  rows.sort((a, b) => a[0] - b[0]);
  const total = rows.at(-1)?.[1] ?? 0;
  if (!(total > 0)) return null;
  let low = 0, below = 0;
  for (const [edge, count] of rows) {
    if (count >= q * total) {
      if (edge === INFINITE) return low;
      return low + (edge - low) * (count > below ? (q * total - below) / (count - below) : 0);
    }
    low = edge, below = count;
  }
  return low;
}
