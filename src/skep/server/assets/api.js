// The line to the server. The token lives in this tab alone and travels in a header; there is no cookie.

const KEY = "skep-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", "#/search");
}

export const state = { bank: null, banks: [], me: null };

/** An error of the server: what happened and what to do. */
export class Failure extends Error {
  constructor(status, told) {
    super(told?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.told = told ?? {};
  }
}

export const setToken = (token) => (token ? sessionStorage.setItem(KEY, token) : sessionStorage.removeItem(KEY));

async function request(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...(token ? { authorization: `Bearer ${token}` } : {}), ...options.headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, { message: "the server does not answer; is `skep serve` still running?" });
  }
  if (answer.ok) return answer;
  throw new Failure(answer.status, (await answer.json().catch(() => ({}))).error);
}

export const get = async (path) => (await request(path)).json();

/** Call a verb of the bank; with `asOf`, of the bank as it was. */
export async function call(verb, given = {}, { asOf = null, bank = state.bank } = {}) {
  const query = asOf === null ? "" : `?as_of=${asOf}`;
  const headers = { "content-type": "application/json", "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()) };
  const path = `/v1/banks/${encodeURIComponent(bank)}/${verb}${query}`;
  return (await request(path, { method: "POST", headers, body: JSON.stringify(given) })).json();
}

/** Follow the changes of the bank until the signal; goes on after a broken line. */
export async function follow(bank, heard, signal) {
  let last = null;
  while (!signal.aborted) {
    try {
      const path = `/v1/banks/${encodeURIComponent(bank)}/changes${last ? `?after=${last}` : ""}`;
      const reader = (await request(path, { signal })).body.pipeThrough(new TextDecoderStream()).getReader();
      let kept = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const frames = (kept + value).split("\n\n");
        kept = frames.pop();
        for (const frame of frames) {
          last = frame.match(/^id: (\d+)$/m)?.[1] ?? last;
          const data = frame.match(/^data: (.*)$/m);
          if (data) heard(JSON.parse(data[1]));
        }
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Failure && [401, 403].includes(error.status))) return;
    }
    await new Promise((wait) => setTimeout(wait, 1500));
  }
}

export const may = (right) => state.me?.rights.includes(right) && (right !== "review" || state.me.person);
