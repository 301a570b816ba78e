// What waits for a person: pairs that rules could not decide, memories in quarantine, conflicts. One key each.

import { call, may, state } from "/assets/api.js";
import { at, card, empty, h, put, say, tag, tagsOf } from "/assets/parts.js";

const DECISIONS = {
  m: ["MERGE", "Same: merge"], s: ["SUPERSEDED", "The newer replaces the older"], c: ["CONTRADICTION", "They contradict"], b: ["KEEP_BOTH", "Keep both"],
};

export default async function open(place) {
  const list = h("div", {});
  put(place, h("h1", {}, "Review"));
  if (state.me.scope) return void put(place, empty("Not with this token", "What waits concerns the whole bank, and this token has a scope."));
  if (!may("review")) put(place, h("p", { class: "quiet" }, "You can look. Deciding takes a person's token: ", h("code", {}, "skep token add NAME --rights read,write,review --person")));
  put(place, list);
  let items = [];
  let chosen = 0;

  async function load() {
    const [cases, kept] = await Promise.all([call("pending_judgements"), call("find", { status: "quarantined", limit: 100 })]);
    items = [...cases.map((one) => ({ pair: one })), ...kept.memories.map((memory) => ({ memory }))];
    chosen = Math.min(chosen, Math.max(0, items.length - 1));
    draw();
  }

  function draw() {
    if (!items.length) return list.replaceChildren(empty("Nothing waits for you", "Pairs that rules cannot decide and memories that nobody vouched for come here."), search());
    list.replaceChildren(h("p", { class: "quiet small" }, `${items.length} waiting · `, h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " to move"),
      h("ul", { class: "list" }, items.map((item, n) => (item.pair ? pair(item.pair, n) : quarantined(item.memory, n)))), search());
    list.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
  }

  function pair(one, n) {
    const side = (name, memory) => h("div", {}, h("p", { class: "small quiet" }, `${name}, ${at(memory.created_at)}`),
      h("a", { class: "text", href: `#/memory/${encodeURIComponent(memory.id)}` }, memory.text), h("div", { class: "tags" }, ...tagsOf(memory)));
    return h("li", { class: `card${n === chosen ? " chosen" : ""}`, onclick: () => choose(n) },
      h("p", {}, tag(`${one.kind}?`, "warn"), h("span", { class: "quiet small" }, ` alike ${Math.round(one.similarity * 100)} %`)),
      h("div", { class: "two" }, side("older", one.older), side("newer", one.newer)),
      may("review") && h("p", { class: "row" }, Object.entries(DECISIONS).map(([key, [, name]]) =>
        h("button", { type: "button", onclick: (event) => { event.stopPropagation(); decide(n, key); } }, name, " ", h("kbd", {}, key)))));
  }

  function quarantined(memory, n) {
    const buttons = may("review") && h("p", { class: "row" },
      h("button", { type: "button", onclick: (event) => { event.stopPropagation(); decide(n, "a"); } }, "Let it in ", h("kbd", {}, "a")),
      h("button", { type: "button", onclick: (event) => { event.stopPropagation(); decide(n, "x"); } }, "Take it back ", h("kbd", {}, "x")));
    const made = card(memory, [], buttons);
    if (n === chosen) made.classList.add("chosen");
    made.addEventListener("click", () => choose(n));
    return made;
  }

  async function decide(n, key) {
    const item = items[n];
    if (!item || !may("review")) return;
    if (item.pair && DECISIONS[key]) {
      await call("resolve_judgement", { a: item.pair.older.id, b: item.pair.newer.id, decision: DECISIONS[key][0] });
      say(`decided: ${DECISIONS[key][1]}; the history of either memory has the undo`);
    } else if (item.memory && key === "a") {
      await call("mark", { memory_id: item.memory.id, status: "active", reason: "reviewed" });
      say("let in");
    } else if (item.memory && key === "x") {
      await call("retract", { memory_id: item.memory.id, reason: "reviewed" });
      say("taken back");
    } else return;
    await load();
    dispatchEvent(new Event("skep-decided"));
  }

  /** Conflicts that nobody asked about yet: a look through the whole bank, when it is wanted. */
  function search() {
    const found = h("div", {});
    const look = h("button", { type: "button", onclick: async () => {
      look.disabled = true;
      look.textContent = "Looking…";
      const conflicts = await call("find_conflicts").finally(() => { look.disabled = false; look.textContent = "Look again"; });
      found.replaceChildren(conflicts.length
        ? h("ul", { class: "list", id: "conflicts" }, conflicts.slice(0, 100).map(conflict))
        : empty("No conflicts", "Nothing in the bank contradicts or repeats anything else."));
    } }, "Look for conflicts");
    return h("section", {}, h("h2", {}, "Conflicts in the whole bank"), h("p", { class: "quiet small" }, "On a large bank this takes a while."), look, found);
  }

  function conflict(one) {
    const [older, newer] = [one.existing, one.memory].sort((a, b) => a.created_at - b.created_at);
    const row = h("li", { class: "card" },
      h("p", {}, tag(one.kind, one.kind === "contradiction" ? "bad" : "warn"), h("span", { class: "quiet small" }, ` because of ${one.reason}, ${Math.round(one.confidence * 100)} % sure`)),
      [older, newer].map((memory) => h("p", {}, h("span", { class: "quiet small" }, `${at(memory.created_at)} `), h("a", { class: "text", href: `#/memory/${encodeURIComponent(memory.id)}` }, memory.text))),
      may("write") && h("p", { class: "row" },
        act("The newer replaces the older", "supersede", { old: older.id, new: newer.id }),
        act("Same: merge", "merge", { loser: older.id, winner: newer.id }),
        act("They contradict", "link", { src: newer.id, dst: older.id, rel: "contradicts" })));
    function act(name, verb, given) {
      return h("button", { type: "button", onclick: async () => { await call(verb, given); row.remove(); say(`done: ${name}; the history of either memory has the undo`); } }, name);
    }
    return row;
  }

  const choose = (n) => { chosen = Math.max(0, Math.min(items.length - 1, n)); draw(); };
  await load();
  return {
    key: (event) => (event.key === "j" ? choose(chosen + 1) : event.key === "k" ? choose(chosen - 1) : decide(chosen, event.key)),
    changed: () => {
      clearTimeout(load.timer); // not while somebody works on what a long search found
      load.timer = setTimeout(() => { if (!document.querySelector("#conflicts")) load().catch(() => {}); }, 400);
    },
  };
}
