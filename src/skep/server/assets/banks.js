// The banks of this server and their members: how far what each wrote has spread, trust, quarantine, denials.

import { call, get, may, state } from "/assets/api.js";
import { at, bars, empty, h, number, put, size, table, tag, tile } from "/assets/parts.js";

export default async function open(place) {
  put(place, h("h1", {}, "Banks and members"));
  if (state.me.scope) return void put(place, empty("Not with this token", "Members concern the whole bank, and this token has a scope."));
  const spread = await get("/v1/spread");
  const seen = {};
  const sections = [];
  for (const name of state.banks) {
    const [status, trust, hive, last] = await Promise.all([
      call("status", {}, { bank: name }), call("settings", { prefix: "trust/" }, { bank: name }), call("settings", { prefix: "hive/" }, { bank: name }), newest(name)]);
    for (const [actor, one] of Object.entries(last)) seen[actor] ??= one;
    sections.push(() => bank(name, status, trust, hive, last, spread, seen));
  }
  put(place, gossip(spread, seen), sections.map((section) => section()));
  if (may("manage")) {
    const denials = await get("/v1/denials");
    put(place, h("section", {}, h("h2", {}, "Turned away"), denials.length
      ? table([["when"], ["token"], ["asked"], ["why"]], denials.slice(0, 30).map((one) => [at(one.at), one.token ?? "–", `${one.method} ${one.path}`, one.reason]))
      : h("p", { class: "quiet" }, "No call was turned away.")));
  }
}

function bank(name, status, trust, hive, last, spread, seen) {
  const members = Object.entries(spread.known[name]).sort((a, b) => b[1] - a[1]);
  const behind = lag(name, spread);
  const quarantined = status.by_status.quarantined ?? 0;
  return h("section", {}, h("h2", {}, name),
    h("div", { class: "tiles" }, tile("memories", number(status.memories)), tile("in quarantine", number(quarantined)), tile("events", number(status.events)),
      tile("held back", number(status.held)), tile("members", number(members.length)), behind !== null && tile("events behind", number(behind)), tile("on disk", size(status.size_bytes + status.index_bytes))),
    quarantined > 0 && name === state.bank && h("p", {}, h("a", { href: "#/review" }, "Decide about what is in quarantine")),
    h("p", { class: "small quiet" }, `Embedder ${status.embedder}`, status.pending ? ` · ${number(status.pending)} wait for their vector` : "", status.embed_error ? ` · ${status.embed_error}` : ""),
    members.length ? table([["member"], ["writes for"], ["events here", "n"], ["last heard of"]], members.map(([actor, count]) => [
      [h("code", {}, actor), actor === status.actor ? [" ", tag("this server")] : ""].flat(), agents(actor, seen), number(count), last[actor] ? at(last[actor].at) : "long ago"]))
      : empty("Nobody has written yet", "Each process or machine that writes stands here under its own name."),
    Object.keys(trust).length > 0 && h("details", { open: true }, h("summary", {}, "Trust in agents"), table([["agent"], ["trust", "n"]], Object.entries(trust).map(([key, value]) => [key.slice(6), Number(value?.value ?? value).toFixed(2)]))),
    Object.keys(hive).length > 0 && h("details", {}, h("summary", {}, "Settings of the hive"), h("pre", { class: "small", tabindex: "0" }, JSON.stringify(hive, null, 1))));
}

/** What of each member's events has come to which bank; nothing where no two banks have an event in common. */
function gossip({ known, of, shared }, seen) {
  const names = Object.keys(known);
  if (!Object.keys(of).some((actor) => names.filter((name) => actor in known[name]).length > 1)) return null;
  const told = Object.entries(of).sort((a, b) => b[1] - a[1]);
  const whole = (count) => told.reduce((sum, [actor]) => sum + count(actor), 0);
  const all = whole((actor) => of[actor]);
  return h("section", { id: "gossip" }, h("h2", {}, "What has spread"),
    h("p", {}, tag(`${Math.floor(shared * 100)} %`, shared === 1 ? "good" : "warn"), " of all events stand in every bank. Gossip and ", h("code", {}, "skep sync"), " bring the others what they lack."),
    bars(names.map((name) => [name, whole((actor) => known[name][actor] ?? 0) / all])),
    table([["written by"], ["events", "n"], ...names.map((name) => [`in ${name}`, "n"])], told.map(([actor, count]) => [
      [h("code", {}, actor), " ", h("span", { class: "quiet" }, agents(actor, seen))], number(count), ...names.map((name) => {
        const here = known[name][actor] ?? 0;
        return here === count ? "all" : tag(`${number(here)}, lacks ${number(count - here)}`, here ? "warn" : "bad");
      })])));
}

/** How many events other banks of this server have that this one lacks; null where none of them is of the same log. */
function lag(name, { known, of }) {
  const mine = known[name];
  const kin = Object.keys(known).filter((other) => other !== name && Object.keys(known[other]).some((actor) => actor in mine));
  if (!kin.length) return null;
  const actors = new Set([name, ...kin].flatMap((one) => Object.keys(known[one])));
  return [...actors].reduce((sum, actor) => sum + of[actor] - (mine[actor] ?? 0), 0);
}

const agents = (actor, seen) => [...(seen[actor]?.agents ?? [])].join(", ") || "–";

/** When each member last wrote and for which agents, as far as the newest events tell. */
async function newest(bank) {
  const found = {};
  for (const event of await call("history", { limit: 500 }, { bank })) {
    const one = (found[event.actor] ??= { at: Math.floor(event.hlc / 65536) / 1000, agents: new Set() });
    if (event.body.agent) one.agents.add(event.body.agent);
  }
  return found;
}
