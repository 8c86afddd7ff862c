// What the user set for all requests: kept in this browser (the key is not: api.js).

const PLACE = "fathom.settings";
const form = document.getElementById("settings-form");
const problem = document.getElementById("settings-problem");
const effort = document.getElementById("effort");
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty"];

const EXAMPLE_TOOLS = [{
  type: "function",
  function: {
    name: "get_weather",
    description: "Get the weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city"] },
  },
}];

function show() {
  document.getElementById("schema-label").hidden = form.elements.format.value !== "json_schema";
  const found = mistake();
  problem.textContent = found;
  problem.hidden = !found;
}

function store() {
  const kept = { ...Object.fromEntries(new FormData(form)), effort: effort.value };
  localStorage.setItem(PLACE, JSON.stringify(kept));
  show();
}

try {
  const kept = JSON.parse(localStorage.getItem(PLACE) ?? "{}");
  for (const [name, value] of Object.entries(kept)) if (form.elements[name]) form.elements[name].value = value;
  effort.value = kept.effort ?? "high";
} catch {
  localStorage.removeItem(PLACE);
}
if (!effort.value) effort.value = "high";
form.addEventListener("input", store);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(store));
effort.addEventListener("change", store);
document.getElementById("tools-example").addEventListener("click", () => {
  form.elements.tools.value = JSON.stringify(EXAMPLE_TOOLS, null, 2);
  store();
});
show();

const json = (name) => JSON.parse(form.elements[name].value);

/** What is wrong with the settings, in words; "" when nothing is. */
export function mistake() {
  for (const [name, what, wanted] of [["tools", "The tools", Array.isArray], ["schema", "The schema", (v) => v && typeof v === "object"]]) {
    if (name === "schema" && form.elements.format.value !== "json_schema") continue;
    if (name === "tools" && !form.elements.tools.value.trim()) continue;
    try {
      if (!wanted(json(name))) return `${what} must be a JSON ${name === "tools" ? "list" : "object"}.`;
    } catch {
      return `${what} are not valid JSON.`.replace("schema are", "schema is");
    }
  }
  return "";
}

export const setEffort = (value) => ((effort.value = value), store());
export const system = () => form.elements.system.value.trim();

/** The members of a request that the settings decide. */
export function members() {
  const body = { reasoning_effort: effort.value };
  for (const name of NUMBERS) {
    const value = form.elements[name].value;
    if (value !== "" && form.elements[name].validity.valid) body[name] = Number(value);
  }
  if (form.elements.tools.value.trim()) body.tools = json("tools");
  const format = form.elements.format.value;
  if (format === "json_object") body.response_format = { type: format };
  if (format === "json_schema") body.response_format = { type: format, json_schema: { name: "answer", schema: json("schema") } };
  return body;
}
