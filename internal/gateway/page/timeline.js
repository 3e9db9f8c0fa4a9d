// What is seen of one session: who it is, what it asks, and its facts, newest first.

import { now } from "./api.js";
import { afterFrame, byId, el, mark, setMark, setText } from "./dom.js";
import { activity, kind, label, pretty, runtime, sentence } from "./facts.js";
import { stateNames } from "./fleet.js";
import { History } from "./history.js";
import { count, dayOf, momentOf, number, short, span, timeOf } from "./text.js";

const chunk = 200; // facts brought into the document at a time
const rawMost = 200_000; // characters of JSON that are shown

export class Timeline {
  // back is the address of the list, fail is told of what went wrong.
  constructor({ session, back, fail }) {
    this.session = session;
    this.fail = fail;
    this.shown = chunk;
    this.lines = new Map(); // by number
    this.draw = afterFrame(() => this.drawNow());
    this.history = new History(session, this.draw);
    this.root = byId("one");
    this.build(back);
  }

  open() {
    this.history.load().catch((err) => { if (err.name !== "AbortError") this.fail(err); });
  }

  close() {
    this.closed = true;
    this.history.close();
    this.watch.disconnect();
    this.root.replaceChildren();
  }

  take(facts) { this.history.take(facts); }

  build(back) {
    const p = this.parts = {
      back: backLink(back),
      mark: mark("idle"), state: el("span", { class: "state" }), title: el("h2", { id: "one-title" }),
      who: el("p", { class: "who" }), meta: el("dl", { class: "meta" }), asks: el("div", { class: "asks" }),
      facts: el("ol", { class: "facts", id: "facts", reversed: true, "aria-label": "Facts, newest first" }),
      foot: el("p", { class: "foot" }), earlier: el("button", { type: "button", class: "quiet", on: { click: () => this.earlier() } }),
    };
    this.head = el("div", { class: "head" }, p.back, el("div", { class: "name" }, el("p", { class: "status" }, p.mark, p.state), p.title), p.who, p.meta, p.asks);
    this.end = el("div", { class: "end" }, p.foot, p.earlier);
    this.root.replaceChildren(this.head, p.facts, this.end);
    this.root.scrollTop = 0;
    // What comes into sight below is brought in.
    this.watch = new IntersectionObserver((seen) => {
      if (seen.some((s) => s.isIntersecting) && this.shown < this.history.facts.length) {
        this.shown += chunk;
        this.draw();
      }
    }, { root: this.root, rootMargin: "600px" });
    this.watch.observe(this.end);
  }

  earlier() {
    this.shown = this.history.facts.length + chunk;
    this.history.earlier().catch((err) => { if (err.name !== "AbortError") this.fail(err); });
  }

  drawNow() {
    if (this.closed) return;
    this.drawHead();
    const { facts, loading, more, ready } = this.history;
    // Far from the end of a long list, nobody looks at the oldest lines.
    if (this.root.scrollTop < 200 && this.shown > 2 * chunk) this.shown = 2 * chunk;
    const seen = facts.slice(Math.max(0, facts.length - this.shown)).reverse();
    const keep = new Set(seen.map((f) => f.seq));
    for (const [seq, line] of this.lines) {
      if (keep.has(seq)) continue;
      line.remove();
      this.lines.delete(seq);
    }
    let spot = this.parts.facts.firstChild;
    let day = null;
    for (const f of seen) {
      let line = this.lines.get(f.seq);
      if (line === undefined) {
        line = this.line(f);
        this.lines.set(f.seq, line);
        this.parts.facts.insertBefore(line, spot);
      } else {
        spot = line.nextSibling;
      }
      const d = dayOf(f.stored_at_ms);
      if (day !== d) line.dataset.day = d;
      else delete line.dataset.day;
      day = d;
    }
    const hidden = facts.length - seen.length;
    this.parts.earlier.hidden = !more || hidden > 0 || loading;
    setText(this.parts.earlier, "Show earlier facts");
    let foot = "";
    if (loading) foot = "Reading the table…";
    else if (hidden > 0) foot = `${count(hidden, "older fact")} below`;
    else if (ready && facts.length === 0) foot = "No fact yet. The next one appears here by itself.";
    else if (ready && !more) foot = "This is where it began.";
    setText(this.parts.foot, foot);
    // The observer speaks of changes only, and the end may still be in sight.
    this.watch.unobserve(this.end);
    this.watch.observe(this.end);
  }

  drawHead() {
    const s = this.session;
    const p = this.parts;
    const at = now();
    const state = s.status(at);
    this.head.dataset.state = state;
    setMark(p.mark, state);
    setText(p.state, stateNames[state]);
    setText(p.title, s.name);
    setText(p.who, s.title ? `${s.workspace} / ${s.id}` : s.workspace);
    const rows = [];
    if (s.heardAt > 0) rows.push(["Quiet for", span(at - s.heardAt)]);
    if (s.turn && Number.isFinite(s.turn.started_at_ms)) rows.push(["Turn for", span(at - s.turn.started_at_ms)]);
    if (s.state) rows.push(["Record", short(s.state, 80)]);
    if (s.activity) rows.push(["Activity", activity(s.activity)]);
    if (s.queued.length > 0) rows.push(["Queue", count(s.queued.length, "prompt")]);
    if (s.runtime) rows.push(["Runtime", runtime(s.runtime)]);
    rows.push(["Facts", number(s.count)]);
    fill(p.meta, rows.map(([name, value]) => [name, value]));
    const asks = s.lastError ? [["bad", "Last error", s.lastError, ""]] : [];
    for (const r of s.pending) {
      const fields = Array.isArray(r.fields) ? r.fields.map((f) => options(f)).filter(Boolean).join(" · ") : "";
      asks.push(["call", "Asks", r.message ?? r.title ?? "", fields]);
    }
    if (s.asked && s.pending.length === 0) asks.push(["call", "Waits", "for the next prompt", ""]);
    const text = JSON.stringify(asks);
    if (this.asked !== text) {
      this.asked = text;
      p.asks.replaceChildren(...asks.map(([tone, name, message, more]) =>
        el("div", { class: `ask ${tone}` }, el("strong", { text: name }), " ", el("span", { text: short(message, 2000) }), more ? el("small", { text: more }) : null)));
    }
  }

  line(fact) {
    const { label: name, tone } = kind(fact);
    const id = `json-${fact.seq}`;
    const button = el("button", {
      type: "button", class: "quiet raw", "aria-expanded": "false", "aria-controls": id, "aria-label": `JSON of ${label(fact).toLowerCase()}`, text: "JSON",
    });
    const box = el("div", { class: "json", id, hidden: true });
    button.addEventListener("click", () => {
      const open = box.hidden;
      if (open && box.firstChild === null) this.fill(box, fact);
      box.hidden = !open;
      button.setAttribute("aria-expanded", String(open));
    });
    return el("li", { data: { seq: fact.seq, type: fact.type, tone }, value: fact.seq },
      el("time", { datetime: iso(fact.stored_at_ms), title: moments(fact), text: timeOf(fact.stored_at_ms) }), " ",
      el("span", { class: "kind", text: name }), " ",
      el("span", { class: "says", text: sentence(fact, this.history) }), " ",
      el("span", { class: "seq", text: number(fact.seq) }), button, box);
  }

  // fill shows the JSON as it was sent.
  fill(box, fact) {
    const text = fact.raw.length > rawMost ? `${fact.raw.slice(0, rawMost)}` : pretty(fact.raw);
    box.append(el("pre", { tabindex: 0, role: "region", "aria-label": `JSON of ${label(fact).toLowerCase()}`, text }));
    if (fact.raw.length > rawMost) box.append(el("p", { class: "small", text: `The first ${number(rawMost)} of ${number(fact.raw.length)} characters.` }));
    const q = new URLSearchParams({ after_seq: fact.seq - 1, limit: 1, session_id: fact.session_id, workspace_id: fact.workspace_id });
    // Browsers have a clipboard for safe origins only.
    const copy = !navigator.clipboard ? null : el("button", {
      type: "button", class: "quiet", text: "Copy",
      on: { click: () => navigator.clipboard.writeText(fact.raw).then(() => setText(copy, "Copied"), () => setText(copy, "Copying is not allowed here")) },
    });
    box.append(el("p", { class: "small" }, copy, " ", el("a", { href: `/api/v1/events?${q}`, text: "Open in the API" })));
  }
}

// backLink leads to the list; where that stands beside the session, it closes it.
export const backLink = (href) =>
  el("a", { class: "back", href, id: "back" }, el("span", { class: "narrow", text: "← Sessions" }), el("span", { class: "wide" }, "Close ", el("kbd", { "aria-hidden": "true", text: "Esc" })));

const iso = (ms) => (Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : null);

function moments(fact) {
  const stored = `Stored ${momentOf(fact.stored_at_ms)}`;
  const apart = fact.recorded_at_ms - fact.stored_at_ms;
  return Math.abs(apart) < 1000 ? stored : `${stored}; by the worker's clock ${momentOf(fact.recorded_at_ms)}`;
}

function options(field) {
  const title = field?.title ?? field?.id;
  if (typeof title !== "string") return null;
  const names = Array.isArray(field.options) ? field.options.map((o) => o?.title ?? o?.value).filter((v) => typeof v === "string") : [];
  return short(names.length > 0 ? `${title}: ${names.join(", ")}` : title, 300);
}

// fill brings name and value pairs into a list of definitions.
function fill(dl, rows) {
  while (dl.children.length > rows.length) dl.lastChild.remove();
  rows.forEach(([name, value], i) => {
    if (dl.children.length <= i) dl.append(el("div", {}, el("dt"), el("dd")));
    setText(dl.children[i].firstChild, name);
    setText(dl.children[i].lastChild, value);
  });
}
