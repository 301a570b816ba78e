// Search with why: the level and the features of each hit, and what gave its place to what.

import { call, state } from "/assets/api.js";
import { bars, card, empty, h, number, put, tag } from "/assets/parts.js";

const NAMES = {
  semantic: "meaning", words: "words", lexical: "words, beside the best", coverage: "share of the question", title: "title",
  context: "with its neighbours", time: "of that time", recency: "how new", confidence: "how sure", importance: "importance",
  trust: "trust in who wrote it", usage: "how often used", speaker: "who said it", guidance: "says how to answer",
};
const LEVELS = { strong: "most likely the answer", likely: "likely the answer", weak: "near, perhaps no answer" };

export default async function open(place, { query }) {
  const field = h("input", { id: "query", type: "search", autofocus: true, value: query.get("q") ?? "", placeholder: "Ask a question, or type a few words", "aria-label": "Search the memories" });
  const all = h("input", { type: "checkbox", id: "replaced" });
  const kind = h("select", { "aria-label": "Kind" }, ["every kind", "fact", "episode", "procedure", "document"].map((one) => h("option", { value: one }, one)));
  const found = h("section", { "aria-live": "polite" });
  let chosen = -1;
  let asked = 0;

  async function search(event) {
    event?.preventDefault();
    const text = field.value.trim();
    history.replaceState(null, "", text ? `#/search?q=${encodeURIComponent(text)}` : "#/search");
    const mine = ++asked;
    const next = text ? await hits(text) : await newest();
    if (mine !== asked) return;
    chosen = -1;
    found.replaceChildren(...next);
  }

  async function hits(text) {
    const given = { query: text, limit: 20, explain: true, include_superseded: all.checked };
    if (kind.value !== "every kind") given.kind = kind.value;
    const begun = performance.now();
    const { hits, reason, trace } = await call("recall", given);
    const took = Math.round(performance.now() - begun);
    const stages = h("details", {}, h("summary", {}, "What each step did"),
      h("ol", { class: "small" }, trace.map((stage) => h("li", {}, `${stage.name}: kept ${stage.kept}, cut ${stage.cut}${stage.note ? ` (${stage.note})` : ""}`))));
    if (!hits.length) return [empty("Nothing was found", reason || "No memory is near this. Try other words."), stages];
    const texts = Object.fromEntries(hits.map((hit) => [hit.memory.id, hit.memory.text]));
    await Promise.all(hits.flatMap((hit) => [hit.replaced, hit.updated_by, ...hit.conflicts_with]).filter((id) => id && !texts[id]).map(async (id) => {
      const named = await call("get", { memory_id: id }).catch(() => null);
      if (named) texts[id] = named.text;
    }));
    const likely = hits.filter((hit) => hit.level !== "weak");
    const first = likely.length ? likely : hits.slice(0, 3);
    const rest = hits.slice(first.length);
    const ranked = (some) => h("ol", { class: "list" }, some.map((hit) => card(hit.memory, [tag(hit.level, hit.level)], why(hit, texts))));
    return [
      h("p", { class: "quiet small" }, `${likely.length ? `${likely.length} of ${hits.length} likely` : "Probably nothing here answers this; what is nearest"} · ${took} ms${reason ? ` · ${reason}` : ""}`),
      ranked(first), rest.length > 0 && h("details", {},
        h("summary", {}, `${rest.length} more that are near and perhaps no answer`), ranked(rest)), stages].filter(Boolean);
  }

  async function newest() {
    const page = await call("find", { limit: 20 });
    if (!page.memories.length) return [empty("This bank is empty", "A memory is one sentence that is worth keeping. Add the first one: ", h("code", {}, 'skep add "Deploys happen on Tuesdays"'))];
    return [h("h2", {}, "Newest"), h("ul", { class: "list" }, page.memories.map((memory) => card(memory)))];
  }

  field.addEventListener("input", debounced(search));
  for (const one of [all, kind]) one.addEventListener("change", search);
  put(place, h("h1", { class: "hidden" }, "Search"),
    h("form", { class: "search", role: "search", onsubmit: search }, field,
      h("p", { class: "row small" }, kind, h("label", { for: "replaced" }, all, " also what was replaced"))), found);
  await search();

  const choose = (step) => {
    const cards = [...found.querySelectorAll(".card")];
    if (!cards.length) return;
    cards[chosen]?.classList.remove("chosen");
    chosen = (chosen + step + cards.length) % cards.length;
    cards[chosen].classList.add("chosen");
    cards[chosen].querySelector("a").focus();
  };
  return {
    key: (event) => ({ j: () => choose(1), k: () => choose(-1) })[event.key]?.(),
    changed: () => { if (!field.value.trim()) search(); },
  };
}

/** Why a hit is there: features as bars, and what stands in front of what. */
function why(hit, texts) {
  const link = (id) => h("a", { href: `#/memory/${encodeURIComponent(id)}` }, texts[id] ?? id);
  const told = [];
  if (hit.updated_by) told.push(h("p", { class: "small" }, tag("outdated", "warn"), " gave its place to: ", link(hit.updated_by)));
  if (hit.replaced) told.push(h("p", { class: "small" }, tag("replaces", "good"), " stands for: ", link(hit.replaced)));
  for (const id of hit.conflicts_with) told.push(h("p", { class: "small" }, tag("conflict", "bad"), " does not go with: ", link(id)));
  if (hit.flags.includes("disagreement")) told.push(h("p", { class: "small quiet" }, "It shares words, but lies far behind in meaning."));
  if (hit.via) told.push(h("p", { class: "small quiet" }, `Found by a link: ${hit.via.src} ${hit.via.rel} ${hit.via.dst}`));
  const pairs = Object.entries(hit.signals).filter(([, value]) => value).map(([name, value]) => [NAMES[name] ?? name, value]);
  return [told, h("details", {}, h("summary", {}, `Why: ${LEVELS[hit.level]}, score ${hit.score.toFixed(2)}`), bars(pairs),
    h("p", { class: "small quiet" }, Object.entries(hit.ranks).map(([name, rank]) => `${NAMES[name] ?? name}: place ${number(rank)}`).join(" · ")))];
}

function debounced(act) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(act, 180); };
}
