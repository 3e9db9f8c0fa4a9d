// Pages: it lists the facts of one workspace from the table, page after page, up to the
// newest. With --session it lists those of one session. It says where to go on.
//
//   node pages.js --workspace demo --after 0

import { parseArgs } from "node:util";
import { connect } from "@nats-io/transport-node";
import { token } from "./skald.js";
import { ask, Refused } from "./service.js";

const { values: flags } = parseArgs({
  options: {
    after: { type: "string", default: "0" }, // a number, or epoch:number
    limit: { type: "string", default: "500" }, // facts of a page
    server: { type: "string", default: "127.0.0.1:4222" },
    session: { type: "string" },
    workspace: { type: "string", default: "default" },
  },
});

const nc = await connect({ servers: flags.server, name: "pages.js", maxReconnectAttempts: -1 });
try {
  const subject = `skald.api.${token(flags.workspace)}.events`;
  const question = { after_seq: flags.after, limit: flags.limit, session_id: flags.session };
  for (;;) {
    const page = await ask(nc, subject, question);
    for (const fact of page.events) console.log(JSON.stringify(fact));
    // With the epoch: should the numbers begin anew, the next question is refused.
    question.after_seq = `${page.epoch}:${page.next_after_seq}`;
    // A page can be short, or empty, before the newest fact: only the numbers tell.
    if (page.next_after_seq >= page.latest_seq) break;
  }
  console.error(`pages: --after ${question.after_seq} goes on from here`);
} catch (err) {
  if (!(err instanceof Refused)) throw err;
  console.error(`pages: ${err.failure.code}: ${err.message}`);
  process.exitCode = 1;
} finally {
  await nc.close();
}
