// The address and what it shows: filters and the open session, so that a view can be
// shared and the back button works.

import { states } from "./fleet.js";

// read returns {workspace, states, text, session, of} of the address; session and its
// workspace, of, are "" where none is open.
export function read(search = location.search) {
  const q = new URLSearchParams(search);
  const named = (q.get("state") ?? "").split(",").filter((s) => states.includes(s));
  return {
    workspace: q.get("workspace") ?? "", states: new Set(named), text: q.get("text") ?? "",
    session: q.get("session") ?? "", of: q.get("in") ?? "",
  };
}

// address is the way back: the shortest that read reads as the route.
export function address(route) {
  const q = new URLSearchParams();
  if (route.workspace) q.set("workspace", route.workspace);
  if (route.states.size > 0) q.set("state", states.filter((s) => route.states.has(s)).join(","));
  if (route.text.trim()) q.set("text", route.text);
  if (route.session) {
    q.set("in", route.of);
    q.set("session", route.session);
  }
  const text = q.toString();
  return text ? `/?${text}` : "/";
}
