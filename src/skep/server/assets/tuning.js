// The search configuration: what is in use, each version that was deployed, and what was measured.

import { call, state } from "/assets/api.js";
import { at, empty, h, put, table, tag } from "/assets/parts.js";

export default async function open(place) {
  put(place, h("h1", {}, "Tuning"));
  if (state.me.scope) return void put(place, empty("Not with this token", "The search configuration concerns the whole bank, and this token has a scope."));
  const [config, kept] = await Promise.all([call("setting", { key: "recall/config" }), call("settings", { prefix: "tuning/" })]);
  const versions = Object.values(kept).filter((one) => one && typeof one === "object" && "number" in one && "config" in one).sort((a, b) => b.number - a.number);
  const measured = Object.values(kept).filter((one) => one && typeof one === "object" && "results" in one && !("number" in one));
  put(place, h("section", {}, h("h2", {}, "In use"), config && Object.keys(config).length
    ? h("details", {}, h("summary", {}, config.name ?? "a config of its own"), h("pre", { class: "card small", tabindex: "0" }, JSON.stringify(config, null, 1)))
    : h("p", {}, "The preset ", tag("default"), " as it ships. ", h("code", {}, "skep tune"), " measures another one and deploys it if it is no worse.")));
  put(place, h("section", {}, h("h2", {}, "Versions"), versions.length
    ? table([["version", "n"], ["deployed"], ["by"], ["why"], ["metrics"], ["gate"]], versions.map((one) => [one.number, at(one.at), one.author, one.reason, figures(one.results),
      one.forced ? tag(`forced past ${one.overridden?.length ?? 0}`, "warn") : tag("passed", "good")]))
    : empty("No version was deployed", "A version is a file of settings with what it scored on a holdout, and who deployed it why.")));
  if (measured.length) put(place, h("section", {}, h("h2", {}, "Measured"), table([["when"], ["figures"]], measured.map((one) => [one.at ? at(one.at) : "", figures(one.results)]))));
}

const FIGURES = { nudcg: "nUDCG", precision: "precision", recall: "recall", distractors: "distractors", abstained_right: "rightly silent", abstained_wrong: "wrongly silent", latency_ms: "ms (p95)" };
const figures = (results) => (results ? Object.entries(FIGURES).filter(([name]) => name in results).map(([name, said]) => `${said} ${Number.isInteger(results[name]) ? results[name] : results[name].toFixed(2)}`).join(" · ") : "–");
