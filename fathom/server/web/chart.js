// Curves over time and stacked bars, as SVG.

const make = (name, attributes = {}, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

const LEFT = 46, RIGHT = 6, TOP = 8, BOTTOM = 20;

/** The smallest round number that is no less; of what is counted in ones, an even one. */
const round = (value, whole) => {
  const power = 10 ** Math.floor(Math.log10(value));
  const found = (whole ? [1, 2, 4, 6, 8, 10] : [1, 2, 5, 10]).map((step) => step * power).find((step) => step >= value * 0.999);
  return whole ? Math.max(2, found) : found;
};

/**
 * `series`: [{name, kind: "k1"…, area}], `format(value)` a text. draw(points): [{time, values: [number|null, …]}] in
 * seconds, oldest first; three minutes are shown, of a page that is younger than one minute one. `onpoint(point or null)` while a pointer is over the curves.
 */
export class Chart {
  constructor({ title, series, format, whole = false, onpoint }) {
    Object.assign(this, { title, series, format, whole, onpoint });
    this.svg = make("svg", { class: "chart", role: "img" });
    this.points = [];
    this.over = null;
    this.svg.addEventListener("pointermove", (event) => {
      this.over = event.clientX - this.svg.getBoundingClientRect().left;
      this.paint();
    });
    this.svg.addEventListener("pointerleave", () => ((this.over = null), this.paint()));
    new ResizeObserver(() => this.paint()).observe(this.svg);
  }

  draw(points) {
    this.points = points;
    this.paint();
  }

  paint() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (width < 80 || height < 40) return;
    const now = this.points.at(-1)?.time ?? 0;
    const seconds = now - (this.points[0]?.time ?? 0) > 60 ? 180 : 60;
    const shown = this.points.filter((point) => point.time >= now - seconds);
    const most = Math.max(0, ...shown.flatMap((point) => point.values.map((value) => value ?? 0)));
    const top = round(most > 0 ? most : 1, this.whole);
    const x = (time) => LEFT + (1 - (now - time) / seconds) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(share * top);
      parts.push(make("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      parts.push(make("text", { x: LEFT - 7, y: at + 4, "text-anchor": "end" }, this.format(share * top)));
    }
    for (let ago = 0; ago <= seconds; ago += seconds / 3) {
      const label = ago === 0 ? "now" : ago < 60 ? `−${ago} s` : `−${ago / 60} min`;
      parts.push(make("text", { x: x(now - ago), y: height - 3, "text-anchor": ago === 0 ? "end" : ago === seconds ? "start" : "middle" }, label));
    }
    this.series.forEach((one, index) => {
      let path = "", begun = null, last = null;
      const areas = [];
      const close = () => {
        if (begun !== null) areas.push(`${path.slice(path.lastIndexOf("M"))}L${last} ${y(0)}L${begun} ${y(0)}Z`);
        begun = null;
      };
      for (const point of shown) {
        const value = point.values[index];
        if (value === null || value === undefined) {
          close();
          continue;
        }
        const at = x(point.time).toFixed(1);
        path += `${begun === null ? "M" : "L"}${at} ${y(value).toFixed(1)}`;
        if (begun === null) begun = at;
        last = at;
      }
      close();
      if (one.area && areas.length) parts.push(make("path", { class: `area ${one.kind}`, d: areas.join("") }));
      if (path) parts.push(make("path", { class: one.kind, d: path }));
    });
    let point = null;
    if (this.over !== null && shown.length) {
      point = shown.reduce((best, each) => (Math.abs(x(each.time) - this.over) < Math.abs(x(best.time) - this.over) ? each : best));
      parts.push(make("line", { class: "at", x1: x(point.time), x2: x(point.time), y1: TOP, y2: height - BOTTOM }));
    }
    this.svg.replaceChildren(...parts);
    const told = this.series.map((one, index) => `${one.name} ${this.points.length ? this.format(this.points.at(-1).values[index] ?? 0) : "unknown"}`);
    this.svg.setAttribute("aria-label", `${this.title}, now: ${told.join(", ")}`);
    this.onpoint?.(point);
  }
}

/** One bar of parts: [{value, kind}] of `total`. */
export function bar(parts, total, label) {
  const svg = make("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", role: "img", "aria-label": label });
  let at = 0;
  for (const { value, kind } of parts) {
    const wide = total > 0 ? (100 * value) / total : 0;
    svg.append(make("rect", { x: at, y: 0, width: Math.min(wide, 100 - at), height: 1, class: kind }));
    at += wide;
  }
  return svg;
}
