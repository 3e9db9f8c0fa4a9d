// The list of sessions. Only the rows that can be seen are in the document, so that
// thousands cost no more than a screen of them.

import { afterFrame, byId, el, mark, setMark, setText } from "./dom.js";
import { now } from "./api.js";
import { ended, sentence } from "./facts.js";
import { stateNames, states } from "./fleet.js";
import { short, span } from "./text.js";

const beyond = 8; // rows kept above and below the screen

const byName = new Intl.Collator("en", { numeric: true });

// before orders sessions: who needs somebody first; among those the longest waiting,
// the latest failed, the longest silent; the working by name, so that they stand still.
function before(a, b) {
  if (a.rank !== b.rank) return a.rank - b.rank;
  const [x, y] = [a.session, b.session];
  let d = 0;
  if (a.rank === 0 || a.rank === 2) d = x.heardAt - y.heardAt;
  else if (a.rank !== 3) d = y.heardAt - x.heardAt;
  return d || byName.compare(x.workspace, y.workspace) || byName.compare(x.name, y.name) || byName.compare(x.id, y.id);
}

// arrange orders and filters the sessions: {items: [{session, state, rank}], counts}.
export function arrange(sessions, filter) {
  const at = now();
  const counts = Object.fromEntries(states.map((s) => [s, 0]));
  const text = filter.text.trim().toLowerCase();
  const items = [];
  for (const session of sessions) {
    if (filter.workspace && session.workspace !== filter.workspace) continue;
    if (text && !`${session.title ?? ""}\n${session.id}\n${session.workspace}`.toLowerCase().includes(text)) continue;
    const state = session.status(at);
    counts[state]++;
    if (filter.states.size > 0 && !filter.states.has(state)) continue;
    items.push({ session, state, rank: states.indexOf(state) });
  }
  items.sort(before);
  return { items, counts };
}

export class List {
  // href gives a session's address, want is told which sessions are seen.
  constructor({ href, want }) {
    this.href = href;
    this.want = want;
    this.scroller = byId("scroll");
    this.ul = byId("sessions");
    this.items = [];
    this.rows = new Map(); // by key, those in the document
    this.current = null; // the key of the row that somebody was at last
    this.opened = null; // the key of the open session
    this.draw = afterFrame(() => this.drawNow());
    this.scroller.addEventListener("scroll", this.draw, { passive: true });
    new ResizeObserver(this.draw).observe(this.scroller);
    this.ul.addEventListener("focusin", (e) => {
      const key = e.target.closest("li")?.key;
      if (key !== undefined && key !== this.current) { this.current = key; this.draw(); }
    });
    this.ul.addEventListener("focus", () => this.focus(0));
  }

  show(items) {
    this.items = items;
    this.draw();
  }

  open(key) {
    this.opened = key;
    if (key !== null) this.current = key;
    this.draw();
  }

  get height() { return parseFloat(getComputedStyle(this.ul).getPropertyValue("--row")) || 44; }

  drawNow() {
    const height = this.height;
    const total = this.items.length;
    const whole = `${total * height}px`;
    if (this.ul.style.height !== whole) this.ul.style.height = whole;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / height) - beyond);
    const end = Math.min(total, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / height) + beyond);
    const lead = this.items[this.lead()]?.session.key;
    const focused = this.ul.contains(document.activeElement) ? document.activeElement.closest("li") : null;
    const wanted = [];
    for (let i = 0; i < total; i++) {
      // The row with the focus stays, wherever it is, and the one that Tab leads to.
      const { key } = this.items[i].session;
      if ((i >= first && i < end) || key === focused?.key || key === lead) wanted.push(i);
    }
    const keep = new Set(wanted.map((i) => this.items[i].session.key));
    for (const [key, row] of this.rows) {
      if (keep.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    const at = now();
    const lines = wanted.map((i) => this.row(this.items[i], i, total, height, at, lead));
    place(this.ul, lines, focused);
    this.want(wanted.filter((i) => i >= first + beyond / 2 && i < end - beyond / 2).map((i) => this.items[i].session));
  }

  // row fills the session's row in.
  row({ session, state }, i, total, height, at, lead) {
    let li = this.rows.get(session.key);
    if (li === undefined) {
      li = newRow(session.key);
      this.rows.set(session.key, li);
    }
    const p = li.parts;
    const top = `${i * height}px`;
    if (li.style.top !== top) li.style.top = top;
    li.dataset.state = state;
    li.classList.toggle("leads", i > 0 && this.items[i - 1].state !== state);
    li.setAttribute("aria-posinset", i + 1);
    li.setAttribute("aria-setsize", total);
    const href = this.href(session);
    if (p.link.getAttribute("href") !== href) p.link.setAttribute("href", href);
    p.link.tabIndex = session.key === lead ? 0 : -1;
    if (session.key === this.opened) p.link.setAttribute("aria-current", "true");
    else p.link.removeAttribute("aria-current");
    setMark(p.mark, state);
    setText(p.state, stateNames[state]);
    setText(p.name, session.name);
    setText(p.id, session.title ? session.id : "");
    setText(p.where, session.workspace);
    setText(p.last, lastOf(session, state));
    setText(p.age, session.heardAt > 0 ? span(at - session.heardAt) : "–");
    return li;
  }

  // lead is where the row is that Tab leads to: the one that somebody was at last, else
  // the first in sight.
  lead() {
    const i = this.current === null ? -1 : this.items.findIndex((item) => item.session.key === this.current);
    return i >= 0 ? i : Math.min(this.items.length - 1, Math.ceil(this.scroller.scrollTop / this.height));
  }

  // focus moves the focus by so many rows, from the current one.
  focus(by) {
    if (this.items.length === 0) return;
    const i = Math.min(this.items.length - 1, Math.max(0, this.lead() + by));
    this.current = this.items[i].session.key;
    const height = this.height;
    const { scrollTop, clientHeight } = this.scroller;
    if (i * height < scrollTop) this.scroller.scrollTop = i * height;
    else if ((i + 1) * height > scrollTop + clientHeight) this.scroller.scrollTop = (i + 1) * height - clientHeight;
    this.drawNow();
    this.rows.get(this.current)?.parts.link.focus({ preventScroll: true });
  }
}

// lastOf says what happened last: of those who need somebody, why.
function lastOf(session, state) {
  const fact = session.last;
  if (state === "waiting" && session.pending.length > 0) return short(String(session.pending.at(-1).message ?? "")) || "Asks something";
  if (state === "waiting" && session.asked) return "Waits for the next prompt";
  if (state === "failed" && fact?.type !== "error") {
    if (session.lastError !== null) return short(session.lastError);
    if (session.outcome !== null) return ended(session.outcome);
  }
  if (fact === null) return unknown(session);
  // That it is idle now is said already.
  if (state === "idle" && fact.type === "activity_changed" && session.outcome !== null) return ended(session.outcome);
  fact.said ??= sentence(fact);
  return fact.said;
}

// unknown says why no last event is known: there is none, perhaps no more, or it is
// still asked for.
function unknown(session) {
  if (session.count === 0) return "No event";
  return session.tried >= session.lastSeq ? "No event is kept" : "";
}

function newRow(key) {
  const p = {
    mark: mark("idle"), state: el("span", { class: "state" }), name: el("span", { class: "name" }), id: el("span", { class: "id" }),
    where: el("span", { class: "where" }), last: el("span", { class: "last" }), age: el("span", { class: "age" }),
  };
  // The spaces part the words for those who hear them.
  p.link = el("a", {}, el("span", { class: "status" }, p.mark, p.state), " ", el("span", { class: "what" }, p.name, " ", p.id), " ",
    p.where, " ", p.last, " ", p.age);
  const li = el("li", {}, p.link);
  li.key = key;
  li.parts = p;
  return li;
}

// place brings the lines into the list in their order, and moves all but the one with
// the focus, which would lose it. Nothing else is in the list.
function place(ul, lines, focused) {
  const pivot = focused === null ? -1 : lines.indexOf(focused);
  for (let i = pivot - 1; i >= 0; i--) {
    if (lines[i + 1].previousSibling !== lines[i]) ul.insertBefore(lines[i], lines[i + 1]);
  }
  for (let i = pivot + 1; i < lines.length; i++) {
    const spot = i === 0 ? ul.firstChild : lines[i - 1].nextSibling;
    if (spot !== lines[i]) ul.insertBefore(lines[i], spot);
  }
}
