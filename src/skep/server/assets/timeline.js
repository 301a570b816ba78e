// What was believed at a time, and what changed it since.

import { call, state } from "/assets/api.js";
import { at, card, empty, eventTime, eventWords, h, onDay, put, subjects, tag, textsOf } from "/assets/parts.js";

const SHOWN = 300;

export default async function open(place, { query }) {
  const events = (await call("history", { limit: SHOWN, ...scoped() })).filter((event) => event.kind !== "use" && event.kind !== "setting");
  const title = h("h1", {}, "Timeline");
  if (!events.length) return void put(place, title, empty("Nothing has happened yet", "Each change of the bank will stand here, and the bank as it was before it."));
  const oldest = await call("find", { status: null, limit: 1, until: eventTime(events.at(-1)) + 0.001, ...scoped() });
  const first = Math.min(eventTime(events.at(-1)), ...oldest.memories.map((one) => one.created_at));
  const last = Date.now() / 1000;
  const slider = h("input", { type: "range", min: 0, max: 1000, value: 1000, id: "moment", "aria-describedby": "when" });
  const when = h("output", { id: "when", for: "moment" });
  const about = h("input", { type: "search", placeholder: "about everything", "aria-label": "Only what is about these words", value: query.get("q") ?? "" });
  const believed = h("section", { "aria-live": "polite" });
  const log = h("ol", { class: "days" });
  const moments = [...new Set(events.map(eventTime))].sort((a, b) => a - b);
  // The way goes by events: a quiet month and a busy minute both get room.
  const timeAt = (value) => {
    if (value >= 1000) return last;
    const place = (value / 1000) * (moments.length - 1);
    const below = Math.floor(place);
    return moments[below] + (place - below) * ((moments[below + 1] ?? last) - moments[below]);
  };
  let turn = 0;

  async function show() {
    const mine = ++turn;
    const moment = timeAt(Number(slider.value));
    const now = moment >= last;
    when.textContent = now ? "now" : at(moment);
    slider.setAttribute("aria-valuetext", when.textContent);
    log.replaceChildren(...events.slice(0, 60).map((event) => h("li", { class: eventTime(event) > moment ? "future" : "" },
      h("span", { class: "quiet small" }, onDay(eventTime(event)), " "), link(event))));
    const given = { limit: 30, ...scoped(), ...(about.value.trim() ? { text: about.value.trim() } : {}) };
    const then = await call("find", given, { asOf: now ? null : moment });
    const today = now ? {} : Object.fromEntries(await Promise.all(then.memories.map(async (one) => [one.id, await call("get", { memory_id: one.id }).catch(() => null)])));
    if (mine !== turn) return;
    const changed = then.memories.filter((one) => !now && differs(one, today[one.id])).length;
    believed.replaceChildren(
      h("h2", {}, now ? "What is believed now" : `What was believed then${changed ? ` · ${changed} changed since` : ""}`),
      then.memories.length ? h("ul", { class: "list" }, then.memories.map((one) => card(one, now ? [] : since(one, today[one.id])))) : empty("Nothing was believed then", "The first memory came later; move the slider to the right."));
  }

  const texts = textsOf(events);
  const link = (event) => { const [id] = subjects(event); return id ? h("a", { href: `#/memory/${encodeURIComponent(id)}` }, eventWords(event, texts)) : eventWords(event, texts); };
  slider.addEventListener("input", () => { when.textContent = at(timeAt(Number(slider.value))); });
  slider.addEventListener("change", show);
  about.addEventListener("change", show);
  put(place, title,
    h("div", { class: "card" }, h("p", { class: "row" }, h("label", { for: "moment", class: "wide" }, "As it was at ", when), about), slider,
      h("p", { class: "row small quiet" }, h("span", { class: "wide" }, onDay(first)), h("span", {}, "now"))),
    h("div", { class: "two" }, believed, h("section", {}, h("h2", {}, "What changed it"), log)));
  await show();
  const step = (by) => { slider.value = Number(slider.value) + by * Math.max(1, Math.round(1000 / moments.length)); show(); };
  return { key: (event) => ({ j: () => step(-1), k: () => step(1) })[event.key]?.() };
}

const scoped = () => (state.me.scope ? { scope: state.me.scope } : {});
const differs = (then, now) => !now || now.status !== then.status || now.text !== then.text;
function since(then, now) {
  if (!now) return [tag("forgotten since", "bad")];
  if (now.text !== then.text) return [tag("says something else now", "warn")];
  return now.status === then.status ? [] : [tag(`${now.status} since`, "bad")];
}
