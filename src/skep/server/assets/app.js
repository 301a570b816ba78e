// The shell: which page is shown, the choice of bank, keys, light and dark, changes made elsewhere.

import { Failure, call, follow, get, may, setToken, state } from "/assets/api.js";
import { ask, h, say } from "/assets/parts.js";

const PAGES = {
  search: ["Search", "search.js"],
  timeline: ["Timeline", "timeline.js"],
  review: ["Review", "review.js"],
  usage: ["Usage", "usage.js"],
  banks: ["Banks", "banks.js"],
  tuning: ["Tuning", "tuning.js"],
};
const HIDDEN = { memory: ["Memory", "memory.js"] };
const main = document.getElementById("main");
let shown = null;
let turn = 0;
let following = null;

async function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const page = PAGES[name] ?? HIDDEN[name];
  if (!page) return void (location.hash = "#/search");
  document.title = `${page[0]} · skep`;
  for (const link of document.querySelectorAll("#pages a"))
    link.hash === `#/${name}` ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  const mine = ++turn;
  shown?.leave?.();
  shown = null;
  try {
    const { default: open } = await import(`/assets/${page[1]}`);
    const place = h("div", {});
    const opened = await open(place, { id: decodeURIComponent(rest.join("/")), query: new URLSearchParams(query) });
    if (mine !== turn) return opened?.leave?.();
    shown = opened ?? {};
    main.replaceChildren(place);
    place.querySelector("[autofocus]")?.focus();
  } catch (error) {
    if (mine === turn) main.replaceChildren(h("h1", {}, page[0]), problem(error));
  }
}

const problem = (error) => h("div", { class: "error", role: "alert" }, error instanceof Failure ? error.message : `The page failed: ${error.message}`);

addEventListener("hashchange", show);
addEventListener("unhandledrejection", (event) => { event.preventDefault(); main.prepend(problem(event.reason)); });
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing) return;
  if (event.key === "/") { event.preventDefault(); location.hash = "#/search"; document.getElementById("query")?.focus(); }
  else if (event.key === "?") keys();
  else if (event.key >= "1" && event.key <= "6" && !shown?.digits) location.hash = `#/${Object.keys(PAGES)[event.key - 1]}`;
  else shown?.key?.(event);
});

const keys = () => ask("Keys", h("dl", {},
  [["/", "search"], ["1 – 6", "the pages"], ["j, k", "next, previous"], ["Enter", "open the chosen memory"], ["?", "this list"],
    ["Review: m, s, c, b", "merge, the newer replaces, contradiction, keep both"], ["Review: a, x", "let a memory in, take it back"]]
    .map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])), { label: "Close" });

const root = document.documentElement;
const theme = () => localStorage.getItem("skep-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
root.dataset.theme = theme();
document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem("skep-theme", theme() === "dark" ? "light" : "dark");
  root.dataset.theme = theme();
});

async function start() {
  try {
    state.me = await get("/v1/me");
  } catch (error) {
    if (![401, 429].includes(error.status)) return main.replaceChildren(problem(error));
    return login(error);
  }
  state.banks = state.me.banks;
  const kept = localStorage.getItem("skep-bank");
  state.bank = state.banks.includes(kept) ? kept : state.banks[0];
  if (!state.bank) return main.replaceChildren(problem(new Failure(403, { message: "this token opens no bank of this server" })));
  const choice = document.getElementById("bank");
  choice.replaceChildren(...state.banks.map((name) => h("option", { value: name, selected: name === state.bank }, name)));
  choice.closest("label").hidden = state.banks.length < 2;
  choice.onchange = () => { state.bank = choice.value; localStorage.setItem("skep-bank", state.bank); listen(); show(); };
  document.getElementById("pages").replaceChildren(...Object.entries(PAGES).map(([name, [title]]) =>
    h("a", { href: `#/${name}`, id: `to-${name}` }, title)));
  listen();
  if (!location.hash || location.hash === "#") location.hash = "#/search";
  await show();
  waiting();
}

function login(error) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", required: true, class: "wide" });
  main.replaceChildren(
    h("h1", {}, "Which token?"),
    sessionStorage.length ? problem(error) : h("p", {}, "The server printed an address with a token when it started. Open that, or paste the token here; ",
      h("code", {}, "skep token add NAME --person"), " makes one for good."),
    h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); setToken(field.value.trim()); start(); } },
      h("label", { for: "token" }, "Token"), field, h("button", { class: "main" }, "Open")));
  field.focus();
}

function listen() {
  following?.abort();
  following = new AbortController();
  follow(state.bank, (change) => { shown?.changed?.(change); }, following.signal);
}

/** How much waits for a person, beside the name of the page. */
async function waiting() {
  if (state.me.scope || !may("read")) return;
  const [cases, kept] = await Promise.all([call("pending_judgements"), call("find", { status: "quarantined", limit: 100 })]);
  const count = cases.length + kept.memories.length;
  const link = document.getElementById("to-review");
  link.querySelector(".count")?.remove();
  if (count) link.append(h("span", { class: "count" }, count), h("span", { class: "hidden" }, " waiting"));
}
addEventListener("skep-decided", waiting);

start();
say("");
