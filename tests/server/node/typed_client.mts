import createClient from "openapi-fetch";
import type { paths } from "./skep.js";

declare const process: { argv: string[] };
const [url, token] = process.argv.slice(2);
const skep = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });
const path = { bank: "team" };

const stored = await skep.POST("/v1/banks/{bank}/remember", {
  params: { path }, body: { text: "Staging runs PostgreSQL 16" },
});
const found = await skep.POST("/v1/banks/{bank}/recall", {
  params: { path }, body: { query: "which postgres?", limit: 3 },
});
const refused = await skep.POST("/v1/banks/{bank}/remember", { params: { path }, body: { text: "" } });
console.log(JSON.stringify({
  id: stored.data?.memory.id, text: found.data?.hits[0]?.memory.text, refused: refused.response.status,
}));
