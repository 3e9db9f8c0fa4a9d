// The facts of one session: the newest first loaded from the table, then what is live.

import { page } from "./api.js";

const rows = 1000; // of a page
const want = 400; // facts that a load aims at
const keep = 20_000; // facts that are kept

export class History {
  // changed is called when there are other facts than before.
  constructor(session, changed) {
    this.session = session;
    this.changed = changed;
    this.facts = []; // ascending
    this.waiting = []; // live ones that came before the table was read to its end
    this.from = null; // all of the session's facts behind this number are held
    this.ready = false;
    this.loading = false;
    this.turns = new Map(); // when commands' turns started
    this.questions = new Map(); // what was asked, by id
    this.stopping = new AbortController();
  }

  close() { this.stopping.abort(); }

  get first() { return this.session.firstSeq ?? 1; }

  // more reports whether there are older facts.
  get more() { return this.from !== null && this.from >= this.first; }

  // step is a stretch of numbers that holds about as many facts as are wanted.
  step() {
    const { count, lastSeq } = this.session;
    return Math.max(want, Math.ceil(((lastSeq - this.first + 1) * want) / Math.max(1, count)));
  }

  // load reads the newest. The stream has begun before, so what it brings and what the
  // table holds meet; each number is taken once.
  async load() {
    const { count, lastSeq } = this.session;
    // A stretch cut off at the first fact of all would leave a few behind it.
    const from = count <= 1.5 * want ? this.first - 1 : Math.max(this.first - 1, lastSeq - this.step());
    this.loading = true;
    this.changed();
    try {
      let after = from;
      let end = false;
      const facts = [];
      while (!end) {
        const p = await this.page(after);
        facts.push(...p.facts);
        after = p.next;
        end = p.next >= p.latest;
      }
      this.from = from;
      this.facts = facts;
      this.ready = true;
      const waiting = this.waiting;
      this.waiting = [];
      facts.forEach((f) => this.note(f));
      this.take(waiting);
    } finally {
      this.loading = false;
      this.changed();
    }
  }

  // earlier reads the stretch in front of what is held.
  async earlier() {
    if (this.loading || !this.more) return;
    this.loading = true;
    this.changed();
    try {
      let step = this.step();
      let found = [];
      let from = this.from;
      while (found.length === 0 && from >= this.first) {
        const until = from;
        from = Math.max(this.first - 1, from - step);
        step *= 4; // there was nothing: look further
        found = await this.stretch(from, until);
      }
      found.forEach((f) => this.note(f));
      this.facts = found.concat(this.facts);
      this.from = from;
    } finally {
      this.loading = false;
      this.changed();
    }
  }

  // stretch returns the facts in (from, until].
  async stretch(from, until) {
    const found = [];
    for (let after = from; after < until;) {
      const p = await this.page(after);
      for (const f of p.facts) if (f.seq <= until) found.push(f);
      if (p.next >= p.latest) break;
      after = p.next;
    }
    return found;
  }

  page(after) {
    return page({ session_id: this.session.id, workspace_id: this.session.workspace, after_seq: Math.max(0, after), limit: rows }, this.stopping.signal);
  }

  // take adds live facts of this session.
  take(facts) {
    const own = facts.filter((f) => f.session_id === this.session.id && f.workspace_id === this.session.workspace);
    if (own.length === 0) return;
    if (!this.ready) {
      this.waiting.push(...own);
      return;
    }
    for (const f of own) {
      if (f.seq <= (this.facts.at(-1)?.seq ?? this.from)) continue;
      this.note(f);
      this.facts.push(f);
    }
    if (this.facts.length > keep) {
      this.facts.splice(0, this.facts.length - keep / 2);
      this.from = this.facts[0].seq - 1;
    }
    this.changed();
  }

  // note keeps what later facts refer to.
  note(fact) {
    const { turn, request } = fact.data ?? {};
    if (fact.type === "turn_started" && turn?.command_id !== undefined) this.turns.set(turn.command_id, turn.started_at_ms);
    if (fact.type === "input_required" && typeof request?.message === "string") this.questions.set(request.id, request.message);
  }

  began(command) { return this.turns.get(command); }

  asked(id) { return this.questions.get(id); }
}
