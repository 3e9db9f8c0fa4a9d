// The sessions, as their records say and as the facts since then change them.

import { askJSON, now, page } from "./api.js";
import { ending } from "./facts.js";

// silentAfter is how long a working session may say nothing before it is called silent.
export const silentAfter = 5 * 60_000;

// The states, those who need somebody first.
export const states = ["waiting", "failed", "silent", "working", "idle"];

export const stateNames = { waiting: "Waiting", failed: "Failed", silent: "Silent", working: "Working", idle: "Idle" };

export const stateMeanings = {
  waiting: "asked a question, or waits for the next prompt",
  failed: "its record, its last turn or its last event says so",
  silent: "should be working, and has said nothing for 5 minutes",
  working: "a turn or another activity is under way",
  idle: "nothing to do, or closed",
};

export const keyOf = (workspace, id) => `${workspace}\n${id}`;

const failedState = /^(failed|error|lost|crashed|unreachable)$/i;
const closedState = /^(closed|stopped|done|finished)$/i;

// Session is one session. Its fields are those of the record, by short names.
class Session {
  constructor(workspace, id) {
    this.key = keyOf(workspace, id);
    this.workspace = workspace;
    this.id = id;
    this.title = null;
    this.state = null;
    this.lastError = null;
    this.execution = null;
    this.turn = null; // the active one
    this.outcome = null; // of the last one
    this.asked = false; // the last turn ended with a wish for input
    this.pending = [];
    this.queued = [];
    this.activity = null;
    this.runtime = null;
    this.heardAt = 0; // ms, when it last said something; 0 is unknown
    this.count = 0;
    this.firstSeq = null;
    this.lastSeq = 0; // what is told here holds up to this fact
    this.last = null; // the last fact, if it is known
    this.tried = 0; // the number under which no last fact was found
  }

  get name() { return this.title || this.id; }

  // adopt takes over a record, unless facts are known that it does not hold yet.
  adopt(record) {
    const seq = record.events.last_seq ?? 0;
    if (seq < this.lastSeq) return false;
    this.title = record.title;
    this.state = record.state;
    this.lastError = record.last_error;
    this.execution = record.execution;
    this.turn = record.active_turn;
    this.outcome = record.last_turn_outcome;
    this.asked = this.turn === null && this.outcome !== null && ending(this.outcome.outcome) === "asked";
    this.pending = record.pending_elicitations;
    this.queued = record.queued_prompts;
    this.activity = record.activity;
    this.runtime = record.runtime;
    this.heard(record.last_activity_at_ms);
    this.count = record.events.count;
    this.firstSeq = record.events.first_seq;
    this.lastSeq = seq;
    return true;
  }

  // heard: a worker's clock may be ahead.
  heard(ms) {
    if (Number.isFinite(ms)) this.heardAt = Math.max(this.heardAt, Math.min(ms, now()));
  }

  // fold takes a fact in, as the projection does.
  fold(fact) {
    if (this.last === null || fact.seq >= this.last.seq) this.last = fact;
    this.heard(fact.stored_at_ms);
    if (fact.seq <= this.lastSeq) return; // the record holds it
    this.lastSeq = fact.seq;
    this.firstSeq ??= fact.seq;
    this.count++;
    const d = fact.data ?? {};
    switch (fact.type) {
      case "turn_started":
        this.turn = d.turn ?? {};
        this.asked = false;
        this.execution = { kind: "running", started_at_ms: this.turn.started_at_ms };
        break;
      case "turn_ended":
        this.turn = null;
        this.outcome = d.turn ?? null;
        this.asked = this.outcome !== null && ending(this.outcome.outcome) === "asked";
        this.execution = { kind: "idle" };
        break;
      case "input_required":
        if (d.request) this.pending = [...this.pending.filter((r) => r.id !== d.request.id), d.request];
        else this.asked = true;
        break;
      case "input_resolved":
        this.pending = this.pending.filter((r) => r.id !== d.elicitation_id);
        break;
      case "activity_changed":
        this.activity = d.activity ?? null;
        break;
      case "runtime_resolved":
        this.runtime = d.receipt ?? null;
    }
  }

  // status is who the session is to somebody who watches.
  status(at) {
    const closed = this.execution?.kind === "closed" || closedState.test(this.state ?? "");
    if (!closed && (this.pending.length > 0 || this.asked || this.activity?.waiting_for_input === true)) return "waiting";
    if (this.lastError !== null || failedState.test(this.state ?? "")) return "failed";
    if (this.turn === null) {
      if (this.last?.type === "error") return "failed";
      if (this.outcome !== null && ["error", "rejected", "interrupted", "quota"].includes(ending(this.outcome.outcome))) return "failed";
    }
    if (closed || !this.works()) return "idle";
    return this.heardAt > 0 && at - this.heardAt > silentAfter ? "silent" : "working";
  }

  works() {
    if (this.turn !== null || this.execution?.kind === "running" || this.execution?.kind === "closing") return true;
    if (this.activity === null) return false;
    return typeof this.activity.is_idle === "boolean" ? !this.activity.is_idle : /^(running|working|busy|active)$/i.test(this.activity.state ?? "");
  }
}

// Fleet holds all sessions.
export class Fleet {
  // changed is called when sessions are others than they were.
  constructor(changed) {
    this.changed = changed;
    this.clear();
  }

  clear() {
    this.sessions = new Map();
    this.recent = new Map(); // the last fact of sessions, until their record is listed
    this.unsure = new Set(); // keys whose record is to be asked for
    this.wanted = new Set(); // keys whose last fact is to be asked for
    this.asking = false;
    this.listing = null;
    this.generation = (this.generation ?? 0) + 1;
  }

  at(workspace, id) {
    const key = keyOf(workspace, id);
    let s = this.sessions.get(key);
    if (s === undefined) {
      s = new Session(workspace, id);
      this.sessions.set(key, s);
    }
    return s;
  }

  // list reads all records, page by page, and drops the sessions that are no more.
  list() {
    this.listing ??= this.listAll().finally(() => { this.listing = null; });
    return this.listing;
  }

  async listAll() {
    const generation = this.generation;
    const before = new Set(this.sessions.keys());
    let after = 0;
    do {
      const answer = await askJSON("/api/v1/sessions", { limit: 1000, after });
      if (generation !== this.generation) return;
      for (const record of answer.sessions) {
        const s = this.at(record.workspace_id, record.session_id);
        s.adopt(record);
        const last = this.recent.get(s.key);
        if (last !== undefined && s.last === null) s.fold(last);
        before.delete(s.key);
      }
      after = answer.next_after;
      this.changed();
    } while (after !== null);
    this.recent.clear();
    for (const key of before) this.sessions.delete(key);
    if (before.size > 0) this.changed();
  }

  // recall keeps facts that the records will hold already, for what is said of the last.
  recall(facts) {
    for (const f of facts) this.recent.set(keyOf(f.workspace_id, f.session_id), f);
  }

  // take folds facts in.
  take(facts) {
    for (const f of facts) {
      const s = this.at(f.workspace_id, f.session_id);
      // Titles and queues change beside the facts, mostly when a turn starts.
      if (f.seq > s.lastSeq && (s.lastSeq === 0 || f.type === "turn_started")) this.unsure.add(s.key);
      s.fold(f);
    }
    this.changed();
    void this.askOn();
  }

  // doubt has a session's record asked for again.
  doubt(key) {
    this.unsure.add(key);
    void this.askOn();
  }

  // want has the last facts asked for, of those sessions where none is known.
  want(sessions) {
    for (const s of sessions) if (s.last === null && s.lastSeq > s.tried) this.wanted.add(s.key);
    void this.askOn();
  }

  // askOn asks one question after the other, the latest first, so that a page costs the
  // server no more than one.
  async askOn() {
    if (this.asking) return;
    this.asking = true;
    const generation = this.generation;
    try {
      while (this.unsure.size > 0 || this.wanted.size > 0) {
        const from = this.unsure.size > 0 ? this.unsure : this.wanted;
        const key = [...from].at(-1);
        from.delete(key);
        const s = this.sessions.get(key);
        if (s === undefined) continue;
        if (from === this.unsure) await this.askRecord(s, generation);
        else if (s.last === null) await this.askLast(s);
        if (generation !== this.generation) return;
        this.changed();
      }
    } catch {
      // What was not answered is asked for again by the next list, or when it is seen.
    } finally {
      if (generation === this.generation) this.asking = false;
    }
  }

  // askRecord asks by a query: browsers take ids like . and .. out of paths, encoded too.
  async askRecord(s, generation) {
    const { sessions } = await askJSON("/api/v1/sessions", { session_id: s.id, workspace_id: s.workspace });
    if (generation !== this.generation) return;
    if (sessions.length > 0) s.adopt(sessions[0]);
    else this.sessions.delete(s.key); // forgotten
  }

  async askLast(s) {
    const { facts } = await page({ session_id: s.id, workspace_id: s.workspace, after_seq: s.lastSeq - 1, limit: 1 });
    if (facts.length > 0) s.fold(facts[0]);
    else s.tried = s.lastSeq; // pruned
  }
}
