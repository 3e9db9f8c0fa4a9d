// The keyboard. What it does stands in the page's help.

import { byId } from "./dom.js";
import { states } from "./fleet.js";

const typing = (e) => e instanceof HTMLElement && (e.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(e.tagName));

// listen hands keys to the actions: move(by), search(), back(), only(state), all(), help().
export function listen(actions) {
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || byId("help").open || !byId("door").hidden) return;
    if (typing(e.target)) {
      if (e.key === "Escape") {
        if (e.target.id === "text" && e.target.value !== "") return; // the browser clears it
        e.target.blur();
        actions.move(0);
      } else if (e.target.id === "text" && (e.key === "ArrowDown" || e.key === "Enter")) {
        e.preventDefault();
        actions.move(0);
      }
      return;
    }
    const inPane = byId("one").contains(e.target);
    const inList = byId("sessions").contains(e.target) || e.target === document.body;
    const action = {
      "/": () => actions.search(), Escape: () => actions.back(), "?": () => actions.help(), 0: () => actions.all(),
      j: () => actions.move(1), k: () => actions.move(-1),
      ArrowDown: inList && (() => actions.move(e.target === document.body ? 0 : 1)), ArrowUp: inList && (() => actions.move(-1)),
      Home: inList && (() => actions.move(-Infinity)), End: inList && (() => actions.move(Infinity)),
      PageDown: inList && (() => actions.move(10)), PageUp: inList && (() => actions.move(-10)),
    }[e.key] || (/^[1-5]$/.test(e.key) && (() => actions.only(states[e.key - 1])));
    if (!action || (inPane && /^(j|k)$/.test(e.key))) return;
    e.preventDefault();
    action();
  });
}
