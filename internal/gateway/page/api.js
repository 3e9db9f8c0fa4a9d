// Questions to the gateway, and what its refusals mean.

// Failure is an answer that is none: status, code and the other members of its body.
export class Failure extends Error {
  constructor(status, body) {
    super(body.error ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.passes = status >= 500 || status === 429; // it gets better by itself
  }
}

// Lost is a question that nobody answered.
export class Lost extends Error {}

const patience = 30_000; // ms, as long as the gateway may take for an answer

// The server's clock, by the Date of its answers, which has whole seconds: believed
// only where this machine's is plainly another.
let offset = 0;

export const now = () => Date.now() + offset;

function setClock(response) {
  const at = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(at)) return;
  const difference = at + 500 - Date.now();
  offset = Math.abs(difference) > 2500 ? difference : 0;
}

// refusal reads the failure of a response.
export async function refusal(response) {
  let body = {};
  try { body = await response.json(); } catch { /* a proxy's page: the status has to do */ }
  return new Failure(response.status, body);
}

// ask returns the text of an answer; its error is a Failure, Lost, or an AbortError.
export async function ask(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(parameters).toString();
  const limit = AbortSignal.timeout(patience);
  let response;
  try {
    response = await fetch(query ? `${path}?${query}` : path, {
      cache: "no-store", headers: { Accept: "application/json" }, signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    setClock(response);
    if (response.ok) return await response.text();
  } catch (err) {
    if (signal?.aborted) throw err;
    throw new Lost("the server does not answer", { cause: err });
  }
  throw await refusal(response);
}

export const askJSON = async (path, parameters, signal) => JSON.parse(await ask(path, parameters, signal));

// post sends JSON and returns the answer's.
export async function post(path, body) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  } catch (err) {
    throw new Lost("the server does not answer", { cause: err });
  }
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// page returns facts behind a cursor, each with its text as it was sent:
// {facts: [{…, raw}], next, latest, oldest, epoch}.
export async function page(parameters, signal) {
  const text = await ask("/api/v1/events", parameters, signal);
  const begin = text.indexOf("[") + 1;
  const { items, end } = splitArray(text, begin);
  const rest = JSON.parse(`{"events":[${text.slice(end)}`);
  return {
    facts: items.map(parseFact),
    next: rest.next_after_seq, latest: rest.latest_seq, oldest: rest.oldest_seq, epoch: rest.epoch,
  };
}

// parseFact keeps the text: numbers beyond 2^53 and the like are in it as they were sent.
export function parseFact(raw) {
  const fact = JSON.parse(raw);
  fact.raw = raw;
  return fact;
}

// splitArray returns the texts of an array's members, from behind its bracket on.
export function splitArray(text, from) {
  const items = [];
  let depth = 0;
  let start = from;
  for (let i = from; i < text.length; i++) {
    switch (text.charCodeAt(i)) {
      case 0x22: // a string, up to the quote that no backslash escapes
        for (i++; text.charCodeAt(i) !== 0x22; i++) if (text.charCodeAt(i) === 0x5c) i++;
        break;
      case 0x5b: case 0x7b:
        depth++;
        break;
      case 0x5d: case 0x7d:
        if (depth === 0) {
          if (i > start) items.push(text.slice(start, i));
          return { items, end: i };
        }
        depth--;
        break;
      case 0x2c:
        if (depth > 0) break;
        items.push(text.slice(start, i));
        start = i + 1;
    }
  }
  throw new Lost("the answer was cut off");
}
