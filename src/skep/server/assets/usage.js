// What became of the memories: used, never used, helped, misled; outcomes; what was taken out before storing.

import { call, get, state } from "/assets/api.js";
import { bars, card, empty, h, number, put, size, table, tag, tile } from "/assets/parts.js";

export default async function open(place) {
  const scope = state.me.scope ? { scope: state.me.scope } : {};
  const [status, stats, effects, page, asked] = await Promise.all([
    state.me.scope ? null : call("status"), call("stats", scope), call("utility", scope), call("find", { limit: 1000, ...scope }),
    state.me.scope ? null : get(`/v1/banks/${encodeURIComponent(state.bank)}/usage`)]);
  const used = page.memories.filter((memory) => memory.uses > 0).sort((a, b) => b.uses - a.uses);
  const judged = page.memories.filter((memory) => memory.successes + memory.failures > 0);
  const recalls = used.reduce((sum, memory) => sum + memory.uses, 0);
  put(place, h("h1", {}, "Usage"));
  if (!page.memories.length) return void put(place, empty("Nothing to count yet", "Once an agent recalls and reports outcomes, you see here what helped."));
  put(place, 
    h("div", { class: "tiles" },
      status && tile("memories", number(status.memories)), status && tile("events", number(status.events)), status && tile("on disk", size(status.size_bytes + status.index_bytes)),
      tile("times handed out", number(recalls)), tile("never handed out", number(page.memories.length - used.length)),
      tile("outcomes", number(stats.outcomes)), stats.success_rate !== null && tile("went well", `${Math.round(stats.success_rate * 100)} %`)),
    asked && [h("h2", {}, "Questions since the server started"), h("div", { class: "tiles" }, tile("asked", number(asked.asked)), tile("answered with a likely hit", number(asked.likely)),
      tile("weak hits alone", number(asked.asked - asked.likely - asked.silent)), tile("nothing found", number(asked.silent)), tile("asked before", number(asked.repeated)))],
    page.cursor && h("p", { class: "quiet small" }, "Uses are counted over the newest 1,000 memories."),
    h("h2", {}, "Handed out most"),
    used.length ? h("ul", { class: "list" }, used.slice(0, 8).map((memory) => card(memory))) : empty("No memory was handed out yet", "Every recall counts what it returns; the count is written with the next write."),
    h("h2", {}, "What helped, what misled"),
    judged.length ? table([["memory"], ["worked", "n"], ["failed", "n"], ["how sure", "n"]], judged.sort((a, b) => b.successes + b.failures - a.successes - a.failures).slice(0, 30)
      .map((memory) => [h("a", { href: `#/memory/${encodeURIComponent(memory.id)}` }, memory.text), memory.successes, memory.failures, memory.confidence.toFixed(2)]))
      : empty("No outcomes yet", "An agent reports with learn how a task went and what it relied on."),
    stats.outcomes > 0 && [h("h2", {}, "Outcomes by domain"), bars(Object.entries(stats.by_domain).map(([name, { successes, of }]) => [`${name === "-" ? "no domain" : name} (${of})`, successes / of]))].flat(),
  );
  const measured = h("section", {}, h("h2", {}, "Worth of memories that were sometimes withheld"),
    effects.length ? table([["memory"], ["effect", "n"], ["from", "n"], ["to", "n"]], effects.map((one) => [h("a", { href: `#/memory/${encodeURIComponent(one.memory)}` }, one.memory), one.effect.toFixed(2), one.low.toFixed(2), one.high.toFixed(2)]))
      : h("p", { class: "quiet" }, "Recalls that leave one hit out at random (withhold) measure what each memory is worth. None did so yet."));
  const redacted = Object.entries(stats.redacted);
  put(place, measured, redacted.length ? h("section", {}, h("h2", {}, "Taken out before storing"), h("p", {}, redacted.map(([name, count]) => [tag(`${name} ${count}`), " "]))) : "");
}
