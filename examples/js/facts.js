// Facts as a reader takes them: in the order of their numbers, each once, checked.

import { setTimeout as pause } from "node:timers/promises";
import { nanos } from "@nats-io/transport-node";
import { AckPolicy, DeliverPolicy, JetStreamApiError, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { token } from "./skald.js";

const stream = "SKALD_EVENTS";
const epochKey = "skald.epoch";
const consumerNotFound = 10014; // JetStream's code

export class Reader {
  #nc;
  #durable;
  #filter;
  #messages;
  #stopping = false;

  // The number of the last fact that was handled, and the epoch that gives it meaning.
  cursor = { seq: 0, epoch: "" };

  constructor(nc, workspace, durable) {
    this.#nc = nc;
    this.#durable = durable;
    this.#filter = `skald.ev.${token(workspace)}.*.*`;
  }

  // run calls handle(fact, text) for each fact until stop is called. It rides over lost
  // connections, server restarts and a consumer that somebody deletes. It throws what
  // handle throws, and when the numbers have begun anew, since then the cursor is void.
  async run(handle) {
    while (!this.#stopping) {
      try {
        const consumer = await this.#consumer();
        this.#messages = await consumer.consume({ abort_on_missing_resource: true });
        for await (const m of this.#messages) {
          if (this.#stopping) break;
          if (m.seq > this.cursor.seq) { // else it was handled, and the acknowledgement got lost
            const fact = factOf(m);
            if (fact) await handled(handle, fact, m.string());
            this.cursor.seq = m.seq;
          }
          m.ack();
        }
      } catch (err) {
        if (err instanceof Final) throw err.cause;
        if (this.#nc.isClosed()) throw err;
      }
      if (!this.#stopping) await pause(200);
    }
  }

  // stop ends run after the fact at hand.
  stop() {
    this.#stopping = true;
    this.#messages?.stop();
  }

  // consumer returns the durable consumer, made behind the cursor if it is not there.
  async #consumer() {
    const jsm = await jetstreamManager(this.#nc);
    const epoch = (await jsm.streams.info(stream)).config.metadata?.[epochKey];
    this.#same(epoch);
    this.cursor.epoch = epoch;
    try {
      const { config, ack_floor } = await jsm.consumers.info(stream, this.#durable);
      if (config.filter_subject !== this.#filter) {
        throw new Final(new Error(`durable ${this.#durable} reads ${config.filter_subject}, not ${this.#filter}`));
      }
      this.cursor.epoch = config.metadata?.[epochKey];
      this.#same(epoch);
      this.cursor.seq = Math.max(this.cursor.seq, ack_floor.stream_seq);
    } catch (err) {
      if (!(err instanceof JetStreamApiError && err.code === consumerNotFound)) throw err;
      await jsm.consumers.add(stream, {
        durable_name: this.#durable,
        filter_subject: this.#filter,
        deliver_policy: DeliverPolicy.StartSequence,
        opt_start_seq: this.cursor.seq + 1,
        ack_policy: AckPolicy.Explicit,
        ack_wait: nanos(10_000),
        max_ack_pending: 1, // with more, what is delivered again comes behind what follows it
        metadata: { [epochKey]: epoch },
      });
    }
    return await jetstream(this.#nc).consumers.get(stream, this.#durable);
  }

  #same(epoch) {
    if (this.cursor.epoch && this.cursor.epoch !== epoch) {
      throw new Final(new Error(`the numbers have begun anew (epoch ${epoch}, was ${this.cursor.epoch}): read again from 0`));
    }
  }
}

// factOf returns the fact of a message, or undefined if Skald did not write it.
function factOf(m) {
  if (m.subject.startsWith("skald.ev.=.")) return undefined; // it only takes a number
  const written = ["Skald-Ingest-Seq", "Skald-Ingest-Time", "Skald-Index"].every((name) => /^[0-9]+$/.test(m.headers?.get(name) ?? ""));
  if (!written) return undefined;
  try {
    const fact = m.json();
    const [, , workspace, session] = m.subject.split(".");
    const same = fact.seq === m.seq && token(fact.workspace_id) === workspace && token(fact.session_id) === session;
    return same ? fact : undefined;
  } catch {
    return undefined;
  }
}

async function handled(handle, fact, text) {
  try {
    await handle(fact, text);
  } catch (err) {
    throw new Final(err);
  }
}

// Final carries what trying again does not mend through the loop that tries again.
class Final extends Error {
  constructor(cause) {
    super(cause.message, { cause });
  }
}
