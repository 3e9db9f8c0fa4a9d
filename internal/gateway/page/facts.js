// What a fact says, in a sentence. Data is what workers sent: any member may be missing
// or of another type, and types of facts may be new.

import { count, exactSpan, number, short } from "./text.js";

const str = (v) => (typeof v === "string" && v !== "" ? v : null);
const obj = (v) => (v !== null && typeof v === "object" && !Array.isArray(v) ? v : {});
const list = (v) => (Array.isArray(v) ? v : []);

// ending is what a stop reason means, by the contract's classes.
export function ending(outcome) {
  const o = obj(outcome);
  if (o.kind === "rejected" || o.kind === "interrupted") return o.kind;
  const reason = str(o.stop_reason) ?? "";
  switch (reason.replace(/[_-]/g, "").toLowerCase()) {
    case "endturn": return "finished";
    case "awaitinginput": return "asked";
    case "cancelled": case "canceled": return "cancelled";
    case "quotalimit": return "quota";
  }
  return reason.toLowerCase() === "modelcapacity" ? "quota" : "error";
}

// The kinds of facts, for their label and tone.
const kinds = {
  turn_started: ["Turn", "plain"],
  turn_ended: ["Turn", "plain"],
  error: ["Error", "bad"],
  input_required: ["Question", "call"],
  input_resolved: ["Answer", "plain"],
  activity_changed: ["Activity", "soft"],
  runtime_resolved: ["Runtime", "soft"],
};

export function kind(fact) {
  const [label, tone] = Object.hasOwn(kinds, fact.type) ? kinds[fact.type] : [short(fact.type, 40), "soft"];
  return { label, tone };
}

// Nothing is known of what was before.
const nothing = { began: () => undefined, asked: () => undefined };

// sentence says what a fact says. before tells of earlier facts: began when a command's
// turn started, asked what a question was.
export function sentence(fact, before = nothing) {
  const d = obj(fact.data);
  switch (fact.type) {
    case "turn_started": {
      const id = str(obj(d.turn).command_id);
      return id ? `Turn started: ${short(id, 60)}` : "Turn started";
    }
    case "turn_ended": return ended(d.turn, before);
    case "error": return short(str(d.message) ?? "An error without a message");
    case "input_required": {
      const r = obj(d.request);
      const message = str(r.message) ?? str(r.title);
      if (!message) return d.request === undefined ? "Waits for the next prompt" : "Asks something";
      const fields = list(r.fields).map((f) => str(obj(f).title) ?? str(obj(f).id)).filter(Boolean);
      return short(fields.length > 1 ? `Asks: ${message} (${fields.join(", ")})` : `Asks: ${message}`);
    }
    case "input_resolved": {
      const how = { accept: "Answered", decline: "Declined", cancel: "Cancelled", cleared: "No longer asked" };
      const action = str(d.action) ?? "";
      const id = str(d.elicitation_id) ?? "";
      return short(`${Object.hasOwn(how, action) ? how[action] : `Ended (${short(action, 60)})`}: ${before.asked(id) ?? id}`);
    }
    case "activity_changed": return activity(d.activity);
    case "runtime_resolved": return runtime(obj(d.receipt));
  }
  return short(JSON.stringify(fact.data) ?? "");
}

// ended says how a turn ended.
export function ended(value, before = nothing) {
  const turn = obj(value);
  const o = obj(turn.outcome);
  const diagnostic = str(obj(turn.diagnostic).message);
  const says = {
    finished: "Turn finished", asked: "Turn ended", cancelled: "Turn was cancelled",
    quota: "Turn stopped at a limit of quota or capacity", rejected: "Prompt was rejected", interrupted: "Turn was interrupted",
    error: `Turn stopped: ${short(str(o.stop_reason) || "no reason given", 80)}`,
  };
  let text = says[ending(o)];
  const start = before.began(turn.command_id);
  if (Number.isFinite(start) && Number.isFinite(turn.completed_at_ms) && turn.completed_at_ms >= start) {
    text += ` after ${exactSpan(turn.completed_at_ms - start)}`;
  }
  const tokens = obj(turn.usage).total_tokens;
  if (Number.isFinite(tokens)) text += `, ${count(tokens, "token")}`;
  if (ending(o) === "asked") text += "; waits for the next prompt";
  const because = str(o.message) ?? diagnostic;
  return short(because ? `${text}: ${because}` : text);
}

// activity says what a session does. The object is the worker's own; the names are
// those of the workers that Skald comes from.
export function activity(value) {
  const a = obj(value);
  const label = str(obj(a.details).label) ?? str(a.label) ?? str(a.text);
  let state = str(a.state);
  if (a.waiting_for_input === true) state = "waiting for input";
  else if (a.capacity_retry === true) state = "waiting for capacity";
  else if (!state && a.is_idle === true) state = "idle";
  const both = [state && state.replaceAll("_", " "), label].filter(Boolean).join(": ");
  return short(both ? both[0].toUpperCase() + both.slice(1) : JSON.stringify(value) ?? "");
}

export function runtime(receipt) {
  const harness = str(receipt.harness) ?? "an unknown harness";
  if (str(receipt.unavailable_reason)) return short(`Runtime of ${harness} is unknown: ${receipt.unavailable_reason}`);
  const parts = list(receipt.components).map((c) => [str(obj(c).name), str(obj(c).version)].filter(Boolean).join(" ")).filter(Boolean);
  const on = str(receipt.platform) ? ` on ${receipt.platform}` : "";
  return short(`Runs ${harness}${on}${parts.length ? ` (${parts.join(", ")})` : ""}`);
}

// pretty lays JSON out and changes no character of its tokens, so that numbers and
// escapes stand as the worker sent them.
export function pretty(raw) {
  const out = [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  for (let i = 0; i < raw.length; i++) {
    const c = raw[i];
    if (c === '"') {
      const begin = i;
      for (i++; raw[i] !== '"'; i++) if (raw[i] === "\\") i++;
      out.push(raw.slice(begin, i + 1));
    } else if ((c === "{" || c === "[") && (raw[i + 1] === "}" || raw[i + 1] === "]")) {
      out.push(c, raw[++i]);
    } else if (c === "{" || c === "[") {
      depth++;
      out.push(c, line());
    } else if (c === "}" || c === "]") {
      depth--;
      out.push(line(), c);
    } else if (c === ",") out.push(c, line());
    else if (c === ":") out.push(": ");
    else out.push(c);
  }
  return out.join("");
}

export const label = (fact) => `Fact ${number(fact.seq)}`;
