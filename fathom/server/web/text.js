// Text of a model as elements of the page. Nothing here ever becomes markup by itself: all text goes through text nodes,
// and only http and https addresses become links.

/** element("p", {class: "x", title: "y", onclick: f}, "text", child…); null and false children are left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*(\S|\S[\s\S]*?\S)\*\*|(?<![\w*])\*(\S|\S[^*\n]*?\S)\*(?![\w*])|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

/** Code, bold, italics and links of one paragraph. */
function inline(text) {
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) nodes.push(text.slice(at, found.index));
    const [whole, , code, strong, italic, label, address] = found;
    if (code !== undefined) nodes.push(element("code", {}, code.trim() || code));
    else if (strong !== undefined) nodes.push(element("strong", {}, ...inline(strong)));
    else if (italic !== undefined) nodes.push(element("em", {}, ...inline(italic)));
    else nodes.push(element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, label));
    at = found.index + whole.length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

/** The blocks of a text in (a subset of) Markdown: paragraphs, headings, lists, quotes, tables, code. */
export function blocks(text) {
  const lines = text.split("\n");
  const made = [];
  let paragraph = [];
  const close = () => {
    if (paragraph.length) made.push(element("p", {}, ...inline(paragraph.join("\n"))));
    paragraph = [];
  };
  const take = (pattern, from) => {
    let end = from;
    while (end < lines.length && pattern.test(lines[end])) ++end;
    return end;
  };
  for (let i = 0; i < lines.length; ++i) {
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(line);
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    const item = /^\s*([-*+]|\d{1,9}[.)])\s+/.exec(line);
    if (fence) {
      close();
      let end = i + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence[1])) ++end;
      made.push(code(lines.slice(i + 1, end).join("\n"), fence[2]));
      i = end;
    } else if (heading) {
      close();
      made.push(element(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2])));
    } else if (item) {
      close();
      const ordered = /\d/.test(item[1]);
      const pattern = ordered ? /^\s*\d{1,9}[.)]\s+/ : /^\s*[-*+]\s+/;
      const end = take(pattern, i);
      const list = element(ordered ? "ol" : "ul", ordered ? { start: parseInt(item[1], 10) } : {});
      for (const entry of lines.slice(i, end)) list.append(element("li", {}, ...inline(entry.replace(pattern, ""))));
      made.push(list);
      i = end - 1;
    } else if (/^>\s?/.test(line)) {
      close();
      const end = take(/^>\s?/, i);
      made.push(element("blockquote", {}, ...blocks(lines.slice(i, end).map((l) => l.replace(/^>\s?/, "")).join("\n"))));
      i = end - 1;
    } else if (line.includes("|") && /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)+\|?\s*$/.test(lines[i + 1] ?? "")) {
      close();
      const end = take(/\|/, i + 2);
      made.push(table(line, lines.slice(i + 2, end)));
      i = end - 1;
    } else if (line.trim() === "") {
      close();
    } else {
      paragraph.push(line);
    }
  }
  close();
  return made;
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function table(head, rows) {
  const row = (name, line) => element("tr", {}, ...cells(line).map((cell) => element(name, {}, ...inline(cell))));
  return element("div", { class: "table", tabindex: "0" },
    element("table", {}, element("thead", {}, row("th", head)), element("tbody", {}, ...rows.map((r) => row("td", r)))));
}

/** A block of code with its language and a button that copies it. `shown` are the nodes to show instead of the text. */
export function code(text, language = "", shown = [text]) {
  return element("div", { class: "code-block" },
    element("div", { class: "code-head" }, element("span", {}, language || "code"), copyButton(() => text)),
    element("pre", { tabindex: "0" }, element("code", {}, ...shown)));
}

export function copyButton(textOf) {
  const button = element("button", { type: "button", class: "plain small", onclick: async () => {
    try {
      await navigator.clipboard.writeText(textOf());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";  // browsers give the clipboard to https and localhost only
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } }, "Copy");
  return button;
}

/** The value if the text is a JSON object or list, else undefined. */
export function jsonOf(text) {
  const trimmed = text.trim();
  if (!/^[{[]/.test(trimmed)) return undefined;
  try {
    return JSON.parse(trimmed);
  } catch {
    return undefined;
  }
}

/** A JSON value, indented and coloured. */
export function json(value, title = "JSON") {
  const text = JSON.stringify(value, null, 2);
  const shown = [];
  let at = 0;
  for (const found of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g)) {
    shown.push(text.slice(at, found.index));
    const kind = found[2] !== undefined ? "j-name" : found[1] !== undefined ? "j-text" : found[3] ? "j-word" : "j-number";
    shown.push(element("span", { class: kind }, found[1] ?? found[0]), found[2] ?? "");
    at = found.index + found[0].length;
  }
  shown.push(text.slice(at));
  return code(text, title, shown);
}
