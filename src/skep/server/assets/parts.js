// Small parts of every page: elements, memories as cards, times, dialogs. Texts go in as text, never as HTML.

/** An element with properties and children; strings become text. */
export function h(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  put(made, children);
  return made;
}

/** Append children, at any depth; what is nothing is left out. */
export function put(place, ...children) {
  place.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, properties, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties ?? {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
export const onDay = (seconds) => day.format(new Date(seconds * 1000));
export const at = (seconds) => minute.format(new Date(seconds * 1000));
export const eventTime = (event) => Math.floor(event.hlc / 65536) / 1000;
export const eventId = (event) => `${event.actor}-${event.counter}`;
export const number = (value) => new Intl.NumberFormat().format(value);
export const size = (bytes) => (bytes > 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.ceil(bytes / 1e3)} kB`);
export const short = (text, most = 90) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export const GONE = ["superseded", "merged", "retracted", "expired", "deprecated", "forgotten"];

/** A memory as a card of a list; `more` goes below its tags. */
export function card(memory, marks = [], more = null) {
  const gone = GONE.includes(memory.status);
  return h("li", { class: "card", "data-id": memory.id },
    h("a", { class: `text${gone ? " gone" : ""}`, href: `#/memory/${encodeURIComponent(memory.id)}` },
      memory.title ? `${memory.title}: ` : "", memory.text),
    h("div", { class: "tags" }, marks, ...tagsOf(memory)), more);
}

export function tagsOf(memory) {
  const scope = Object.entries(memory.scope ?? {}).map(([part, value]) => `${part} ${value}`).join(", ");
  return [
    memory.status !== "active" && tag(memory.status, memory.status === "quarantined" ? "warn" : "bad"),
    memory.stale && tag("stale", "warn"),
    memory.pinned && tag("pinned"),
    memory.kind !== "fact" && tag(memory.kind),
    memory.domain && tag(memory.domain),
    ...memory.tags.map((one) => h("span", {}, `#${one}`)),
    scope && h("span", {}, scope),
    h("span", {}, onDay(memory.created_at)),
    memory.uses > 0 && h("span", {}, `used ${number(memory.uses)}×`),
  ];
}

export const tag = (text, kind = "") => h("span", { class: `tag ${kind}` }, text);
export const empty = (heading, ...told) => h("div", { class: "empty" }, h("b", {}, heading), ...told);
export const tile = (label, value) => h("div", { class: "tile" }, h("b", {}, value), h("span", { class: "quiet" }, label));

/** Bars for named shares between 0 and 1. */
export function bars(pairs) {
  return h("div", { class: "bars" }, pairs.map(([name, value]) => {
    const filled = h("i", {});
    filled.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
    return [h("span", {}, name), h("div", { class: "bar" }, filled), h("span", {}, value.toFixed(2))];
  }));
}

export function table(columns, rows) {
  return h("div", { class: "wrap", tabindex: "0" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { class: kind, scope: "col" }, name)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, n) => h("td", { class: columns[n][1] }, cell)))))));
}

/** Say something that a screen reader reads as well. */
let silence = 0;
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => (place.textContent = ""), 6000);
}

/** Ask before something is done; the answer is the text of the field, true, or null. */
export function ask(heading, told, { label = "Do it", field = null, danger = false } = {}) {
  return new Promise((settle) => {
    const input = field && h(field.long ? "textarea" : "input", { id: "asked", required: field.required ?? true });
    if (input) input.value = field.value ?? "";
    const box = h("dialog", { "aria-labelledby": "asked-heading" },
      h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); done(input ? input.value : true); } },
        h("h1", { id: "asked-heading" }, heading), told,
        input && h("p", {}, h("label", { for: "asked" }, field.label), input),
        h("p", { class: "row" }, h("button", { class: danger ? "bad" : "main", type: "submit" }, label),
          h("button", { type: "button", onclick: () => done(null) }, "Cancel"))));
    const done = (value) => { box.close(); box.remove(); settle(value); };
    box.addEventListener("cancel", (event) => { event.preventDefault(); done(null); });
    document.body.append(box);
    box.showModal();
  });
}

const VERBS = {
  remember: "remembered", revise: "revised", retract: "taken back", restore: "restored", supersede: "replaced",
  merge: "merged", mark: "marked", evidence: "supported", confirm: "confirmed", dispute: "disputed", outcome: "outcome",
  use: "used", link: "linked", unlink: "link removed", setting: "setting", undo: "undone", forget: "forgotten",
};
/** One event in words; `texts` says what memories say, so that no id stands for one. */
export function eventWords(event, texts = {}) {
  const body = event.body;
  const said = (id) => (texts[id] ? `“${short(texts[id], 48)}”` : id);
  const verb = VERBS[event.kind] ?? event.kind;
  const what = {
    remember: () => short(body.text ?? ""),
    revise: () => Object.entries(body.changes ?? {}).map(([f, v]) => `${f} → ${short(v === null ? "nothing" : String(typeof v === "object" ? JSON.stringify(v) : v), 60)}`).join(", "),
    mark: () => body.status, link: () => `${body.rel ?? "related"} ${said(body.dst)}`, unlink: () => `${body.rel ?? ""} ${said(body.dst)}`,
    supersede: () => `${said(body.old)} by ${said(body.new)}`, merge: () => `${said(body.loser)} into ${said(body.winner)}`, dispute: () => `by ${said(body.by)}`,
    confirm: () => `by ${said(body.by)}`, outcome: () => `${body.success ? "success" : "failure"}: ${short(body.task ?? "", 60)}`,
    setting: () => `${body.key} → ${short(JSON.stringify(body.value ?? null), 60)}`, undo: () => body.event,
  }[event.kind];
  return [verb, what ? what() : "", body.reason ? `(${body.reason})` : ""].filter(Boolean).join(" · ");
}

/** The memories an event is about. */
export const subjects = (event) => {
  const { memory, memories, old, loser, src } = event.body;
  return event.kind === "remember" ? [eventId(event)] : [memory, ...(memories ?? []), old, loser, src].filter(Boolean);
};

/** What memories say, by id, as far as events tell. */
export const textsOf = (events) => Object.fromEntries(events.filter((event) => event.kind === "remember").map((event) => [eventId(event), event.body.text]));
