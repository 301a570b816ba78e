// One memory: what it says, how it came to say it, what it is linked to, what became of it; changes, undo, erasure.

import { call, may, state } from "/assets/api.js";
import { GONE, ask, at, card, empty, eventId, eventTime, eventWords, h, onDay, put, say, short, svg, tag, tagsOf } from "/assets/parts.js";

const FINAL = ["forget"];

export default async function open(place, { id }) {
  let memory;
  let erased = false;
  const refresh = async () => { const made = await whole(); place.replaceChildren(); put(place, made); };

  async function whole() {
    memory = await call("get", { memory_id: id });
    const [events, graph, outcomes, before, copies] = await Promise.all([
      call("history", { memory_id: id }), call("neighbors", { memory_id: id, depth: 1 }), call("outcomes", { memory_id: id }),
      call("neighbors", { memory_id: id, rel: "supersedes", depth: 8 }), call("neighbors", { memory_id: id, rel: "duplicate_of", depth: 8 })]);
    const line = Object.values({ ...before.memories, ...copies.memories, [id]: memory }).sort((a, b) => a.created_at - b.created_at);
    return [
      h("h1", {}, memory.title || "Memory"),
      h("div", { class: "card" }, h("p", { class: `text${GONE.includes(memory.status) ? " gone" : ""}`, id: "text" }, memory.text), h("div", { class: "tags" }, ...tagsOf(memory))),
      memory.superseded_by && h("p", {}, tag("replaced", "warn"), " by ", lineage(memory.superseded_by, graph)),
      memory.merged_into && h("p", {}, tag("merged", "warn"), " into ", lineage(memory.merged_into, graph)),
      buttons(),
      h("div", { class: "two" },
        h("section", {}, h("h2", {}, "What is known about it"), facts()),
        h("section", {}, h("h2", {}, "Where it was used"), outcomes.length
          ? h("ul", {}, outcomes.map((one) => h("li", {}, tag(one.success ? "success" : "failure", one.success ? "good" : "bad"), ` ${short(one.task)} `, h("span", { class: "quiet small" }, at(one.at)))))
          : h("p", { class: "quiet" }, memory.uses ? `Handed out ${memory.uses === 1 ? "once" : `${memory.uses} times`}; no outcome was reported.` : "Not yet. An agent reports with learn what it relied on."))),
      line.length > 1 && h("section", {}, h("h2", {}, "Lineage"), h("ol", { class: "days", id: "lineage" }, line.map((one) => h("li", { class: one.id === id ? "" : "other" },
        h("span", { class: "quiet small" }, onDay(one.created_at), " "), one.id === id ? h("b", {}, one.text) : h("a", { class: GONE.includes(one.status) ? "text gone" : "text", href: `#/memory/${encodeURIComponent(one.id)}` }, one.text),
        GONE.includes(one.status) && [" ", tag(one.status, "bad")])))),
      h("section", {}, h("h2", {}, "Links"), graph.links.length ? [picture(graph), linkList(graph)] : empty("Linked to nothing", "Links say what a memory refines, is derived from or contradicts.")),
      h("section", {}, h("h2", {}, "History"), history(events, graph)),
    ];
  }

  const lineage = (other, graph) => h("a", { href: `#/memory/${encodeURIComponent(other)}` }, graph.memories[other]?.text ?? other);

  function facts() {
    const rows = [
      ["id", memory.id], ["how sure", memory.confidence.toFixed(2)], ["importance", memory.importance.toFixed(2)],
      ["learnt", at(memory.created_at)], ["by", memory.agent], ["source", memory.source],
      ["holds", memory.valid_from || memory.valid_to ? `${memory.valid_from ? at(memory.valid_from) : "always"} until ${memory.valid_to ? at(memory.valid_to) : "now"}` : null],
      ["expires", memory.expires_at && at(memory.expires_at)], ["version", memory.version],
      ["confirmed", memory.confirmations || null], ["disputed", memory.disputes || null],
      ["worked, failed", memory.successes + memory.failures ? `${memory.successes}, ${memory.failures}` : null],
    ];
    return [h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
      memory.evidence.length > 0 && h("p", { class: "small" }, "Evidence: ", memory.evidence.map((one, n) => [n ? ", " : "", h("a", { href: `#/memory/${encodeURIComponent(one)}` }, one)])),
      Object.keys(memory.metadata).length > 0 && h("details", {}, h("summary", {}, "Metadata"), h("pre", { class: "small" }, JSON.stringify(memory.metadata, null, 1)))];
  }

  function buttons() {
    if (!may("write")) return null;
    const gone = GONE.includes(memory.status);
    return h("p", { class: "row" },
      !gone && h("button", { type: "button", onclick: revise }, "Change"),
      !gone && h("button", { type: "button", onclick: () => change("confirm", {}, "confirmed") }, "Confirm"),
      !gone && h("button", { type: "button", onclick: () => change("retract", {}, "taken back; Restore brings it back") }, "Take back"),
      gone && h("button", { type: "button", onclick: () => change("restore", {}, "restored") }, "Restore"),
      may("erase") && h("button", { type: "button", class: "bad", onclick: erase }, "Erase…"));
  }

  async function change(verb, given, done) {
    await call(verb, { memory_id: id, ...given });
    await refresh();
    say(done);
  }

  async function revise() {
    const text = await ask("Change what it says", h("p", { class: "quiet" }, "What it said before stays in its history."), { label: "Save", field: { label: "Text", value: memory.text, long: true } });
    if (text === null || text === memory.text) return;
    await change("revise", { text, expected_version: memory.version }, "changed");
  }

  async function erase() {
    const plan = await call("forget", { memory_ids: id, dry_run: true });
    const sure = await ask("Erase for good?", [
      h("p", {}, "Nothing brings it back: no undo, no replica, no backup. These entries go:"), counts(plan.erased),
      plan.derived.length > 0 && h("p", {}, "Derived from it, and may repeat it: ", plan.derived.map(toMemory)),
      plan.copies.length > 0 && h("p", {}, "Copies that say the same: ", plan.copies.map(toMemory))], { label: "Erase for good", danger: true });
    if (!sure) return;
    erased = true;
    const receipt = await call("forget", { memory_ids: id });
    place.replaceChildren(h("h1", {}, "Erased"),
      h("div", { class: "card", id: "receipt" }, h("p", {}, `${id} was erased at ${at(Date.now() / 1000)}. Nothing of its text is left here.`), counts(receipt.erased),
        receipt.event && h("p", { class: "small quiet" }, `Event ${receipt.event}`),
        receipt.unreached.length ? [h("p", {}, tag("not reached", "bad")), h("ul", {}, receipt.unreached.map((one) => h("li", {}, one)))] : h("p", {}, tag("every known copy was reached", "good"))),
      h("p", {}, h("a", { href: "#/search" }, "Back to the search")));
    say("erased");
  }

  const toMemory = (one) => [h("a", { href: `#/memory/${encodeURIComponent(one)}` }, one), " "];
  const counts = (erased) => h("dl", {}, Object.entries(erased).map(([name, count]) => [h("dt", {}, name), h("dd", {}, String(count))]));

  function history(events, graph) {
    const texts = { [id]: memory.text, ...Object.fromEntries(Object.values(graph.memories).map((one) => [one.id, one.text])) };
    const undone = new Set(events.filter((event) => event.kind === "undo").map((event) => event.body.event));
    return h("ol", { class: "days" }, [...events].reverse().filter((event) => event.kind !== "use").map((event) => h("li", {},
      h("span", { class: undone.has(eventId(event)) ? "text gone" : "" }, eventWords(event, texts)), " ",
      h("span", { class: "quiet small" }, at(eventTime(event)), event.body.by ? ` · ${event.body.by}` : ""), " ",
      may("write") && !undone.has(eventId(event)) && !FINAL.includes(event.kind) &&
        h("button", { type: "button", class: "small", "aria-label": `Undo: ${eventWords(event, texts)}`, onclick: () => undo(event) }, "Undo"))));
  }

  async function undo(event) {
    await call("undo", { event_id: eventId(event) });
    await refresh().catch(() => (location.hash = "#/search"));
    say("undone; the undo can be undone too");
  }

  function linkList(graph) {
    return h("ul", { class: "list" }, Object.values(graph.memories).filter((other) => other.id !== id).map((other) => {
      const marks = graph.links.filter((link) => [link.src, link.dst].includes(other.id) && [link.src, link.dst].includes(id))
        .map((link) => tag(link.src === id ? `${link.rel} →` : `← ${link.rel}`, link.rel === "contradicts" ? "bad" : ""));
      return card(other, marks);
    }));
  }

  /** The memory in the middle, those it is linked to around it. */
  function picture(graph) {
    const others = Object.values(graph.memories).filter((one) => one.id !== id).slice(0, 14);
    const width = 760, height = 90 + 34 * Math.max(2, others.length), middle = [width / 2, height / 2];
    const placed = { [id]: middle };
    others.forEach((one, n) => {
      const angle = (2 * Math.PI * n) / others.length;
      placed[one.id] = [middle[0] + Math.cos(angle) * width * 0.22, middle[1] + Math.sin(angle) * (height / 2 - 40)];
    });
    const lines = graph.links.filter((link) => placed[link.src] && placed[link.dst]).flatMap((link) => {
      const [[x1, y1], [x2, y2]] = [placed[link.src], placed[link.dst]];
      const name = svg("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, "text-anchor": "middle", class: "rel" }, link.rel);
      return [svg("line", { x1, y1, x2, y2, "stroke-width": 0.6 + link.strength }), name];
    });
    const nodes = Object.entries(placed).flatMap(([one, [x, y]]) => {
      const held = graph.memories[one] ?? memory;
      const left = x < middle[0] - 1;
      return [svg("circle", { cx: x, cy: y, r: one === id ? 9 : 7, class: one === id ? "me" : GONE.includes(held.status) ? "gone" : "" }),
        svg("text", { x: x + (one === id ? 0 : left ? -12 : 12), y: y + (one === id ? 26 : 4), "text-anchor": one === id ? "middle" : left ? "end" : "start" }, short(held.text, 30))];
    });
    return svg("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The links of this memory; the list below has the same` }, ...lines, ...nodes);
  }

  await refresh();
  return { changed: (change) => { if (change.memories.includes(id) && !erased && !document.querySelector("dialog")) refresh().catch(() => {}); } };
}
