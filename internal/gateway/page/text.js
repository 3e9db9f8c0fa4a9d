// Times, numbers and lengths as people read them.

const numbers = new Intl.NumberFormat("en");
const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", year: "numeric", month: "short", day: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

export const number = (n) => numbers.format(n);

// A worker may send any integer as a time; one that no date can hold is shown as it is.
const date = (format) => (ms) => (Math.abs(ms) <= 8.64e15 ? format.format(ms) : String(ms));
export const timeOf = date(clockTime);
export const dayOf = date(day);
export const momentOf = date(whole);

// count is "1 fact", "2 facts".
export const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;

// span is a length of time in two parts at most: "41 s", "3 min", "2 h 5 min", "3 d 4 h".
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  const min = Math.floor(s / 60);
  if (min < 60) return `${min} min`;
  const h = Math.floor(min / 60);
  if (h < 24) return min % 60 ? `${h} h ${min % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  if (d > 99) return `${number(d)} d`;
  return h % 24 ? `${d} d ${h % 24} h` : `${d} d`;
}

// exactSpan is for how long something took.
export function exactSpan(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return span(ms);
}

// short cuts a text for one line, between characters.
export function short(text, most = 300) {
  const line = text.replace(/\s+/gu, " ").trim();
  if (line.length <= most) return line;
  return Array.from(line.slice(0, most)).slice(0, -1).join("") + "…";
}
