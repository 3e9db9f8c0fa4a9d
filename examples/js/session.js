// A session as its worker sees it: messages go out one after the other, each is sent
// again until INGEST has it, and the worker asks what became of them.

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { headers } from "@nats-io/transport-node";
import { jetstream, JetStreamApiError } from "@nats-io/jetstream";
import { page, token } from "./skald.js";
import { ask } from "./service.js";

// JetStream's answer to a message larger than the stream takes. It stays true.
const tooLarge = 10054;

export class Session {
  #nc;
  #js;
  #subject;  // of INGEST, less the class
  #service;  // of the position and outcome services, less the session
  #session;  // as a token
  #count = 0;
  #unsettled = []; // counts whose outcome was not asked for yet
  #lastStored = 0; // the highest number that INGEST has acknowledged

  // A new id for each start: this worker does not keep its count on disk.
  publisher = `js-${randomUUID()}`;

  // The W3C trace context of what is said next, if it is part of a trace. The facts carry
  // it on to readers. With OpenTelemetry: propagation.inject gives it.
  traceparent;

  // Where the journal stands. open sets it to what Skald knows.
  frontier;

  // open asks how far the session has come, so that a worker that was started again
  // goes on where the last one stood. A worker that keeps a journal of its own
  // compares: another digest at the same ordinal means that two are at work.
  static async open(nc, workspace, session) {
    const s = new Session();
    s.#nc = nc;
    s.#js = jetstream(nc);
    s.#session = token(session);
    s.#subject = `skald.in.${token(workspace)}.${s.#session}`;
    s.#service = `skald.api.${token(workspace)}`;
    s.frontier = (await s.#ask("position")).frontier;
    return s;
  }

  activity(activity) {
    return this.#counted("activity", { recorded_at_ms: Date.now(), activity });
  }

  error(message) {
    return this.#counted("error", { recorded_at_ms: Date.now(), message });
  }

  // journal continues the session's chain by 1 to 128 observations.
  async journal(observations) {
    const { body, end } = page(this.frontier, observations, Date.now());
    await this.#send("projection", body, headers()); // no count: the chain is its identity
    this.frontier = end;
  }

  // settle waits until all that was sent is decided, and throws what was refused.
  async settle() {
    let at;
    while ((at = await this.#ask("position")).ingest_position < this.#lastStored) await pause(20);
    if (at.frontier.ordinal !== this.frontier.ordinal || at.frontier.digest !== this.frontier.digest) {
      throw new Error(`the chain stands at ${at.frontier.ordinal}, not at ${this.frontier.ordinal}: look at the rejects`);
    }
    while (this.#unsettled.length > 0) {
      const publisher_seq = this.#unsettled[0];
      const { outcome, reason, detail } = await this.#ask("outcome", { publisher: this.publisher, publisher_seq });
      if (outcome !== "applied") throw new Error(`message ${publisher_seq}: ${outcome} ${reason ?? ""} ${detail ?? ""}`);
      this.#unsettled.shift();
    }
  }

  async #counted(kind, body) {
    const h = headers();
    h.set("Skald-Publisher", this.publisher);
    h.set("Skald-Publisher-Seq", String(++this.#count));
    this.#unsettled.push(this.#count);
    await this.#send(kind, JSON.stringify(body), h);
  }

  // send returns when INGEST has the message. Without an answer it may have it or not,
  // so the same bytes with the same headers go again: a duplicate is dropped.
  async #send(kind, body, headers) {
    if (this.traceparent) headers.set("traceparent", this.traceparent);
    for (let wait = 50; ; wait = Math.min(2 * wait, 2000)) {
      try {
        const ack = await this.#js.publish(`${this.#subject}.${kind}`, body, { headers, timeout: 5000 });
        this.#lastStored = ack.seq;
        return;
      } catch (err) {
        // What trying again does not mend.
        if (this.#nc.isClosed() || err instanceof JetStreamApiError && err.code === tooLarge) throw err;
        await pause(wait);
      }
    }
  }

  #ask(question, body) {
    return ask(this.#nc, `${this.#service}.${question}.${this.#session}`, body);
  }
}
