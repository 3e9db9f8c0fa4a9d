// The live stream of facts, resumed by cursor for as long as it takes.
//
// It is read with fetch and not with an EventSource, which knows only the types of facts
// that it was told of, hides status and comments, and can not tell a line that is dead
// from one where nothing happens. Each connection names its place as epoch:seq.

import { Failure, Lost, parseFact, refusal } from "./api.js";

const quiet = 45_000; // ms without a byte, of a server that sends a comment every 15 s
const retryLeast = 500;
const retryMost = 8000;

export class Stream {
  // take gets the facts of a chunk, in order and each once. tell gets "live", or "lost"
  // with the error. end gets the Failure that no retry mends.
  constructor({ take, tell, end }) {
    this.take = take;
    this.tell = tell;
    this.end = end;
    this.stopping = null;
  }

  // start follows from behind seq.
  start(epoch, seq) {
    this.stop();
    this.epoch = epoch;
    this.seq = seq;
    this.go();
  }

  // stop ends the connection; resume goes on from the same place.
  stop() {
    this.stopping?.abort();
    this.stopping = null;
  }

  resume() {
    if (this.stopping === null && this.epoch !== undefined) this.go();
  }

  go() {
    const stopping = new AbortController();
    this.stopping = stopping;
    void this.run(stopping.signal);
  }

  async run(signal) {
    let wait = retryLeast;
    while (!signal.aborted) {
      let heard = false;
      let why;
      try {
        await this.read(signal, () => { heard = true; });
        why = new Lost("the server ended the connection");
      } catch (err) {
        why = err;
      }
      if (signal.aborted) return;
      if (why instanceof Failure && !why.passes) {
        this.stop();
        this.end(why);
        return;
      }
      if (heard) wait = retryLeast;
      this.tell("lost", why);
      // Not all watchers at once.
      await pause(wait * (0.5 + Math.random()), signal);
      wait = Math.min(2 * wait, retryMost);
    }
  }

  // read takes one connection to its end.
  async read(signal, heard) {
    const own = new AbortController();
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => own.abort(), quiet);
    };
    alive();
    try {
      const response = await fetch(`/api/v1/events?after_seq=${encodeURIComponent(`${this.epoch}:${this.seq}`)}`, {
        cache: "no-store", headers: { Accept: "text/event-stream" }, signal: AbortSignal.any([signal, own.signal]),
      });
      if (!response.ok) throw await refusal(response);
      this.tell("live");
      const chunks = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const frames = new Frames();
      for (;;) {
        const { done, value } = await chunks.read();
        if (done) return;
        alive();
        heard();
        const facts = [];
        let note = null;
        for (const f of frames.push(value)) {
          if (f.event === "stream_error" && f.id === "") note = JSON.parse(f.data);
          else if (f.data !== "") facts.push(parseFact(f.data));
        }
        this.deliver(facts);
        if (note !== null) throw new Failure(note.code === "unauthorized" ? 401 : 503, note);
      }
    } catch (err) {
      if (err instanceof Failure || signal.aborted) throw err;
      throw new Lost("the connection was lost", { cause: err });
    } finally {
      clearTimeout(timer);
    }
  }

  // deliver hands on what is new. The place moves first: what was handed on once is
  // never asked for again.
  deliver(facts) {
    const fresh = facts.filter((f) => {
      if (f.seq <= this.seq) return false;
      this.seq = f.seq;
      return true;
    });
    if (fresh.length > 0) this.take(fresh);
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

// Frames takes server-sent events out of a text that comes in pieces.
export class Frames {
  constructor() {
    this.rest = "";
    this.frame = { id: "", event: "", data: [] };
  }

  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    const done = [];
    for (const line of lines) {
      if (line === "") {
        const f = this.frame;
        if (f.data.length > 0) done.push({ id: f.id, event: f.event, data: f.data.join("\n") });
        this.frame = { id: "", event: "", data: [] };
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // a comment
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (name === "data") this.frame.data.push(value);
      else if (name === "id") this.frame.id = value;
      else if (name === "event") this.frame.event = value;
    }
    return done;
  }
}
