// Questions to Skald's NATS service. They are asked until they are answered.

import { setTimeout as pause } from "node:timers/promises";

// Refused is an answer that asking again does not change. failure is the error's JSON.
export class Refused extends Error {
  constructor(failure) {
    super(failure.error);
    this.failure = failure;
  }
}

// ask returns the answer to a question, which is the query's members or nothing. It
// rides over lost connections, restarts, and a server that is behind.
export async function ask(nc, subject, question) {
  const body = question && JSON.stringify(question);
  for (let wait = 50; ; wait = Math.min(2 * wait, 2000)) {
    try {
      const m = await nc.request(subject, body, { timeout: 5000 });
      const code = m.headers?.get("Nats-Service-Error-Code");
      if (!code) return m.json();
      if (code !== "503") throw new Refused(m.json());
    } catch (err) {
      if (err instanceof Refused || nc.isClosed()) throw err;
    }
    await pause(wait);
  }
}
