// The banks of this server and their replicas: how many, how far each actor has come, trust, quarantine, denials.

import { call, get, may, state } from "/assets/api.js";
import { at, empty, h, number, put, say, size, table, tag, tile } from "/assets/parts.js";

export default async function open(place) {
  put(place, h("h1", {}, "Banks and members"));
  if (state.me.scope) return void put(place, empty("Not with this token", "Members concern the whole bank, and this token has a scope."));
  const all = Object.fromEntries(await Promise.all(state.banks.map(async (name) => [name, (await call("versions", {}, { bank: name }))])));
  for (const name of state.banks) {
    const behind = lag(name, all);
    const [status, trust, hive] = await Promise.all([
      call("status", {}, { bank: name }), call("settings", { prefix: "trust/" }, { bank: name }), call("settings", { prefix: "hive/" }, { bank: name })]);
    const members = Object.entries(status.versions).sort((a, b) => b[1] - a[1]);
    const last = await newest(name);
    put(place, h("section", {}, h("h2", {}, name),
      h("div", { class: "tiles" }, tile("memories", number(status.memories)), tile("in quarantine", number(status.by_status.quarantined ?? 0)),
        tile("events", number(status.events)), tile("held back", number(status.held)), tile("members", number(members.length)), behind !== null && tile("events behind", number(behind)), tile("on disk", size(status.size_bytes + status.index_bytes))),
      h("p", { class: "small quiet" }, `Embedder ${status.embedder}`, status.pending ? ` · ${number(status.pending)} wait for their vector` : "", status.embed_error ? ` · ${status.embed_error}` : ""),
      members.length ? table([["member"], ["events here", "n"], ["last heard of"], ["trust", "n"]], members.map(([actor, count]) => [
        [h("code", {}, actor), actor === status.actor ? [" ", tag("this server")] : ""].flat(), number(count), last[actor] ? at(last[actor]) : "long ago", trust[`trust/${actor}`]?.toFixed?.(2) ?? "–"]))
        : empty("Nobody has written yet", "Each process or machine that writes stands here under its own name."),
      Object.keys(trust).length > 0 && h("details", { open: true }, h("summary", {}, "Trust in agents"), table([["agent"], ["trust", "n"]], Object.entries(trust).map(([key, value]) => [key.slice(6), Number(value?.value ?? value).toFixed(2)]))),
      Object.keys(hive).length > 0 && h("details", {}, h("summary", {}, "Settings of the hive"), h("pre", { class: "small" }, JSON.stringify(hive, null, 1)))));
  }
  if (may("manage")) {
    const denials = await get("/v1/denials");
    put(place, h("section", {}, h("h2", {}, "Turned away"), denials.length
      ? table([["when"], ["token"], ["asked"], ["why"]], denials.slice(0, 30).map((one) => [at(one.at), one.token ?? "–", `${one.method} ${one.path}`, one.reason]))
      : h("p", { class: "quiet" }, "No call was turned away.")));
  }
}

/** How many events other banks of this server have that this one lacks; null where none of them is of the same log. */
function lag(name, all) {
  const mine = all[name];
  const kin = Object.entries(all).filter(([other, versions]) => other !== name && Object.keys(versions).some((actor) => actor in mine));
  if (!kin.length) return null;
  const newest = {};
  for (const [, versions] of kin) for (const [actor, count] of Object.entries(versions)) newest[actor] = Math.max(newest[actor] ?? 0, count);
  return Object.entries(newest).reduce((sum, [actor, count]) => sum + Math.max(0, count - (mine[actor] ?? 0)), 0);
}

/** When each member last wrote, as far as the newest events tell. */
async function newest(bank) {
  const found = {};
  for (const event of await call("history", { limit: 500 }, { bank })) found[event.actor] ??= Math.floor(event.hlc / 65536) / 1000;
  return found;
}
