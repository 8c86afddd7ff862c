// What the page asks of the server: requests with the key, events of a stream, failures in words.

const KEY = "fathom.key";  // of this tab: sessionStorage ends with it

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** A failure that a person can read: `title` says what happened, `text` why and what to do. */
export class Failure extends Error {
  constructor(title, text, status = 0) {
    super(title);
    Object.assign(this, { title, text, status });
  }
}

const headers = (more) => (key.get() ? { Authorization: `Bearer ${key.get()}`, ...more } : { ...more });

/** GET of a path, as JSON. `statuses` are fine besides 200. Throws a Failure. */
export async function getJson(path, statuses = []) {
  const response = await send(path, { headers: headers() });
  if (!response.ok && !statuses.includes(response.status)) throw await failureOf(response);
  return response.json();
}

export async function getText(path, statuses = []) {
  const response = await send(path, { headers: headers() });
  if (!response.ok && !statuses.includes(response.status)) throw await failureOf(response);
  return response.text();
}

/** Asks /v1/chat/completions and yields the events of the answer, as JSON. Throws a Failure, or AbortError. */
export async function* chat(body, signal) {
  const response = await send("v1/chat/completions", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", "x-fathom-receipt": "1" }),
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await failureOf(response);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new Failure("The answer broke off", sentence(event.error.message));
    yield event;
  }
  throw new Failure("The answer broke off", "The connection ended before the answer did. What came so far is kept.");
}

/** The data of each server-sent event of a stream of bytes. */
export async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (problem) {
        if (problem.name === "AbortError") throw problem;
        throw new Failure("The answer broke off", "The connection to the server was lost. What came so far is kept.");
      }
      if (part.done) return;
      rest += part.value.replaceAll("\r\n", "\n");
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const lines = rest.slice(0, end).split("\n").filter((line) => line.startsWith("data:"));
        rest = rest.slice(end + 2);
        if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function send(path, options) {
  try {
    return await fetch(path, { cache: "no-store", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Failure("The server cannot be reached", "It may have stopped, or the network is down. Your text is kept: try again.");
  }
}

const sentence = (text) => {
  const words = String(text ?? "").trim() || "The server gave no reason.";
  const full = words[0].toUpperCase() + words.slice(1);
  return /[.!?]$/.test(full) ? full : `${full}.`;
};

async function failureOf(response) {
  let told = "";
  try {
    told = (await response.json()).error?.message ?? "";
  } catch {
    // A proxy may answer with a page of its own: its status says enough.
  }
  const wait = Number(response.headers.get("retry-after"));
  const later = wait > 0 ? ` Try again in ${wait} ${wait === 1 ? "second" : "seconds"}.` : "";
  const title = {
    400: "The server did not take this request",
    401: key.get() ? "The server does not know this key" : "This server asks for a key",
    404: "The server does not know this",
    413: "This is too large for the server",
    429: "The server has too much to do for now",
    503: "The server is not ready",
  }[response.status] ?? `The server answered with status ${response.status}`;
  return new Failure(title, sentence(told) + later, response.status);
}
