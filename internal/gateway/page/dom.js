// Small helpers to build what is seen. Text gets in as text alone.

// el makes an element. Properties: class, text, data (an object), on (an object of
// listeners); all others are attributes, left out where null, undefined or false.
export function el(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") e.className = value;
    else if (name === "text") e.textContent = value;
    else if (name === "data") Object.assign(e.dataset, value);
    else if (name === "on") for (const [event, f] of Object.entries(value)) e.addEventListener(event, f);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

export const byId = (id) => document.getElementById(id);

// setText changes the text only if it is another one, so that nothing is laid out anew.
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// The shape of each state: told apart without colour.
const shapes = {
  waiting: "M8 1.5 14.5 8 8 14.5 1.5 8Z",
  failed: "M3 3 13 13M13 3 3 13",
  silent: "M2.5 8h.01M8 8h.01M13.5 8h.01",
  working: "M4 2.5 13 8 4 13.5Z",
  idle: "M8 3.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 1 0 0-9Z",
};

export function mark(state) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "mark");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", shapes[state]);
  svg.append(path);
  svg.dataset.state = state;
  return svg;
}

// setMark gives a mark another state.
export function setMark(svg, state) {
  if (svg.dataset.state === state) return;
  svg.dataset.state = state;
  svg.firstChild.setAttribute("d", shapes[state]);
}

// afterFrame returns a function that runs f once before the next frame, however often
// it is called until then.
export function afterFrame(f) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; f(); });
  };
}
