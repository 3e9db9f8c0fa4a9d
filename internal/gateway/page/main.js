// The page: it reads where the table ends, lists the sessions, follows what comes
// behind, and shows what the address asks for.

import { askJSON, Failure, page } from "./api.js";
import { byId, el, mark, setText } from "./dom.js";
import { guard } from "./door.js";
import { Fleet, keyOf, stateMeanings, stateNames, states } from "./fleet.js";
import { listen } from "./keys.js";
import { arrange, List } from "./list.js";
import { address, read } from "./route.js";
import { Stream } from "./stream.js";
import { count, number } from "./text.js";
import { backLink, Timeline } from "./timeline.js";

const recent = 1000; // facts before the newest that are read first: many a session's last
const crawl = 500; // sessions whose last fact is asked for though nobody sees them
const redrawEvery = 250; // ms at least between two orders of the list
const statusEvery = 5000;
const listEvery = 30_000; // ms at least: what no fact tells, titles and forgotten sessions
const hiddenMost = 60_000; // ms after which a hidden page gives its connection back
const tooFar = 20_000; // facts that a page behind does not read one by one

const guarded = document.documentElement.dataset.access === "tokens";
let route = read();
let timeline = null;
let loaded = false;
let starting = 0; // counts the starts, so that an older one knows that it is over
let loadedAt = 0;

const fleet = new Fleet(() => redraw());
const list = new List({ href: (s) => address({ ...route, session: s.id, of: s.workspace }), want: (sessions) => fleet.want(sessions) });
const stream = new Stream({
  take: (facts) => {
    fleet.take(facts);
    timeline?.take(facts);
    showPlace();
  },
  tell: (state) => setLink(state),
  end: (failure) => ended(failure),
});

// start loads everything anew.
async function start() {
  const mine = ++starting;
  stream.stop();
  fleet.clear();
  loaded = false;
  closeTimeline();
  enter(true);
  setLink("loading");
  for (let wait = 500; mine === starting; wait = Math.min(2 * wait, 8000)) {
    try {
      const end = await page({ limit: 1 });
      const begin = await page({ after_seq: Math.max(0, end.latest - recent, end.oldest - 1), limit: recent });
      if (mine !== starting) return;
      fleet.recall(begin.facts);
      await fleet.list();
      if (mine !== starting) return;
      loaded = true;
      loadedAt = Date.now();
      stream.start(begin.epoch, begin.next);
      fleet.want([...fleet.sessions.values()].sort((a, b) => a.heardAt - b.heardAt).slice(-crawl));
      showPlace();
      follow();
      return;
    } catch (err) {
      if (mine !== starting) return;
      if (err instanceof Failure && err.status === 401) return enter(false);
      setLink("lost");
      if (err instanceof Failure && !err.passes) tellOf(err);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

// ended is called when the stream can not go on from its place.
function ended(failure) {
  if (failure.status === 401) return enter(false);
  const why = {
    other_epoch: "The bus began anew, or was repaired: its numbers mean something else now. Everything was loaded again.",
    cursor_gone: "Facts were pruned while this page was away. Everything that is kept was loaded again.",
    cursor_ahead: "The bus holds less than this page has seen: it was restored, or is another one. Everything was loaded again.",
  }[failure.code];
  tell(why ?? `The live stream was refused: ${failure.message}. Everything was loaded again.`);
  // Where it is refused again at once, not in a tight circle.
  setTimeout(start, Date.now() - loadedAt < 5000 ? 3000 : 0);
}

// enter shows the fleet, or the door.
function enter(allowed) {
  if (!allowed) {
    starting++;
    stream.stop();
    fleet.clear();
    closeTimeline();
    loaded = false;
    list.show([]);
    setLink("out");
  }
  byId("door").hidden = allowed;
  byId("fleet").hidden = !allowed;
  byId("one").hidden = !allowed || !route.session;
  byId("logout").hidden = !allowed || !guarded;
  document.body.dataset.view = !allowed ? "door" : route.session ? "one" : "list";
  if (!allowed) byId("token").focus();
}

// redraw shows the fleet as it is, at most every redrawEvery ms.
let redrawAt = 0;
let redrawTimer = null;
function redraw() {
  if (redrawTimer !== null) return;
  redrawTimer = setTimeout(() => {
    redrawTimer = null;
    redrawAt = performance.now();
    show();
  }, Math.max(0, redrawAt + redrawEvery - performance.now()));
}

function show() {
  const { items, counts } = arrange(fleet.sessions.values(), route);
  list.show(items);
  for (const s of states) setText(chips.get(s).count, number(counts[s]));
  showWorkspaces();
  showEmpty(items.length);
  const urgent = arrange(fleet.sessions.values(), { workspace: "", text: "", states: new Set() }).counts;
  const n = urgent.waiting + urgent.failed;
  const session = timeline?.session;
  const title = `${n > 0 ? `(${number(n)}) ` : ""}${session ? `${session.name} · ` : ""}Skald`;
  if (document.title !== title) document.title = title;
  follow();
  timeline?.draw();
}

function showWorkspaces() {
  const select = byId("workspace");
  const names = new Set([...fleet.sessions.values()].map((s) => s.workspace));
  if (route.workspace) names.add(route.workspace);
  const sorted = [...names].sort();
  if (select.options.length !== sorted.length + 1 || sorted.some((n, i) => select.options[i + 1].value !== n)) {
    select.replaceChildren(el("option", { value: "", text: "All workspaces" }), ...sorted.map((n) => el("option", { value: n, text: n })));
  }
  if (select.value !== route.workspace) select.value = route.workspace;
}

function showEmpty(seen) {
  const box = byId("empty");
  const kind = seen > 0 ? "" : !loaded ? "loading" : fleet.sessions.size > 0 ? "filtered" : "none";
  if (box.dataset.kind === kind) return;
  box.dataset.kind = kind;
  box.hidden = kind === "" || kind === "loading";
  if (kind === "filtered") {
    box.replaceChildren(el("h3", { text: "No session matches" }), el("p", { text: "There are others, which the filters leave out." }),
      el("button", { type: "button", text: "Clear the filters", on: { click: clearFilters } }));
  } else if (kind === "none") {
    box.replaceChildren(
      el("h3", { text: "Nothing has happened yet" }),
      el("p", { text: guarded ? "The sessions of your workspaces appear here as soon as they say something." : "Sessions appear here as soon as they say something. Let a small fleet play:" }),
      ...(guarded ? [] : [el("pre", { text: "skald demo" }), el("p", { text: "or publish a first event yourself:" }),
        el("pre", { text: "skald publish --session demo --class error --id 1 --body '{\"message\":\"hello\"}'" })]));
  }
}

// follow brings the open session in line with the address.
function follow() {
  const key = route.session ? keyOf(route.of, route.session) : null;
  const session = key === null ? undefined : fleet.sessions.get(key);
  if (timeline !== null && timeline.session !== session) closeTimeline();
  list.open(key);
  byId("one").hidden = key === null || document.body.dataset.view === "door";
  if (key === null || !loaded) return;
  if (session !== undefined && timeline === null) {
    timeline = new Timeline({ session, back: address({ ...route, session: "", of: "" }), fail: tellOf });
    timeline.open();
    fleet.doubt(session.key);
  } else if (session === undefined) {
    const back = backLink(address({ ...route, session: "", of: "" }));
    const title = el("h2", { id: "one-title", text: "There is no such session" });
    if (byId("one").querySelector("#one-title")?.textContent === title.textContent) return;
    byId("one").replaceChildren(el("div", { class: "head" }, back, title,
      el("p", { class: "who", text: `${route.of} / ${route.session}` }),
      el("p", { text: "It was forgotten, has not said anything yet, or is not yours to see. If it begins, it appears here." })));
  }
}

function closeTimeline() {
  timeline?.close();
  timeline = null;
  byId("one").replaceChildren();
}

// go shows another view. Typing replaces the address, all else makes a step to go back to.
function go(change, replace = false) {
  route = { ...route, ...change };
  history[replace ? "replaceState" : "pushState"](null, "", address(route));
  arrive();
}

function arrive() {
  const open = route.session !== "";
  const before = document.body.dataset.view;
  document.body.dataset.view = before === "door" ? before : open ? "one" : "list";
  if (byId("text").value !== route.text) byId("text").value = route.text;
  for (const s of states) chips.get(s).button.setAttribute("aria-pressed", String(route.states.has(s)));
  if (before === "door") return;
  show();
  if (open) byId("one").focus({ preventScroll: true });
  else if (before === "one") requestAnimationFrame(() => list.focus(0));
}

const clearFilters = () => go({ workspace: "", states: new Set(), text: "" });

// What is told: the state of the connection, in the head and to those who listen.
const links = {
  loading: "Loading", live: "Live", lost: "Reconnecting, nothing lost", paused: "Paused while hidden, nothing lost", out: "Not logged in",
};
function setLink(state) {
  const link = byId("link");
  const before = link.dataset.link;
  if (before === state) return;
  link.dataset.link = state;
  setText(byId("link-text"), links[state]);
  link.title = state === "lost" ? `The server does not answer. The page goes on behind fact ${number(stream.seq ?? 0)} by itself.` : "";
  if (state === "lost" || (state === "live" && before === "lost")) setText(byId("said"), links[state]);
  if (state !== "live") setText(byId("lag"), "");
  else void showLag();
}

function tell(text) {
  setText(byId("notice-text"), text);
  byId("notice").hidden = false;
}

const tellOf = (err) => tell(`Something could not be read: ${err.message}. ${err.passes === false ? "Reload the page, or look at the server's log." : "Open the session again to try once more."}`);

function showPlace() {
  byId("lag").dataset.seq = String(stream.seq);
}

// showLag says how far the table is behind what was stored, for those who may know.
let lagRefused = false;
async function showLag() {
  if (document.hidden || byId("link").dataset.link !== "live" || lagRefused) return;
  try {
    const s = await askJSON("/api/v1/status");
    const parts = [];
    if (s.ingest.lag === null || s.events.lag === null) parts.push("lag unknown");
    else parts.push(`lag ${number(s.ingest.lag + s.events.lag)}`);
    parts.push(`fact ${number(stream.seq ?? s.latest_seq)}`, count(s.sessions, "session"));
    if (s.rejects > 0) parts.push(count(s.rejects, "reject"));
    if (byId("link").dataset.link === "live") setText(byId("lag"), parts.join(" · "));
    byId("lag").title = "Lag: messages that are stored and not yet in the table";
  } catch (err) {
    lagRefused = err instanceof Failure && err.status === 403; // a token for some workspaces
    setText(byId("lag"), "");
  }
}

// Chips, one a state, and what they mean.
const chips = new Map(states.map((s) => {
  const counter = el("span", { class: "count", text: "0" });
  const button = el("button", {
    type: "button", class: "chip", "aria-pressed": "false", data: { state: s }, title: `${stateNames[s]}: ${stateMeanings[s]}`,
    on: { click: () => {
      const some = new Set(route.states);
      if (!some.delete(s)) some.add(s);
      go({ states: some });
    } },
  }, mark(s), el("span", { text: stateNames[s] }), counter);
  byId("states").append(button);
  byId("meanings").append(el("div", {}, el("dt", { data: { state: s } }, mark(s), ` ${stateNames[s]}`), el("dd", { text: stateMeanings[s] })));
  return [s, { button, count: counter }];
}));

// Links that stay on the page change the address only.
document.addEventListener("click", (e) => {
  const a = e.target.closest("a[href]");
  if (a === null || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey || e.defaultPrevented) return;
  const to = new URL(a.href);
  if (to.origin !== location.origin || to.pathname !== "/" || to.hash !== "") return;
  e.preventDefault();
  go(read(to.search));
});
byId("skip").addEventListener("click", (e) => {
  e.preventDefault();
  if (!byId("door").hidden) byId("token").focus();
  else list.focus(0);
});
window.addEventListener("popstate", () => { route = read(); arrive(); });
byId("text").addEventListener("input", (e) => go({ text: e.target.value }, true));
byId("workspace").addEventListener("change", (e) => go({ workspace: e.target.value }));
byId("filters").addEventListener("submit", (e) => e.preventDefault());
byId("notice-close").addEventListener("click", () => { byId("notice").hidden = true; });
byId("help-open").addEventListener("click", () => byId("help").showModal());

listen({
  move: (by) => list.focus(by),
  search: () => byId("text").select() ?? byId("text").focus(),
  back: () => { if (route.session) go({ session: "", of: "" }); else if (route.text) go({ text: "" }, true); },
  only: (s) => go({ states: route.states.size === 1 && route.states.has(s) ? new Set() : new Set([s]) }),
  all: clearFilters,
  help: () => byId("help").showModal(),
});
guard({ entered: start, left: () => enter(false) });

// A hidden page needs no connection: browsers have few for a server.
let hiddenTimer = null;
document.addEventListener("visibilitychange", async () => {
  clearTimeout(hiddenTimer);
  if (!loaded) return;
  if (document.hidden) {
    hiddenTimer = setTimeout(() => { stream.stop(); setLink("paused"); }, hiddenMost);
    return;
  }
  if (byId("link").dataset.link !== "paused") return;
  const mine = starting;
  const end = await page({ limit: 1 }).catch(() => null);
  if (mine !== starting) return;
  if (end !== null && end.latest - stream.seq > tooFar) void start();
  else stream.resume();
});

setInterval(() => { if (!document.hidden && loaded) redraw(); }, 1000);
setInterval(showLag, statusEvery);
void (async () => {
  for (let wait = listEvery; ; wait = Math.max(listEvery, 10 * fleet.sessions.size)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (document.hidden || !loaded || byId("link").dataset.link !== "live") continue;
    await fleet.list().catch(() => {}); // the stream says it if the server is gone
  }
})();

arrive();
void start();
