// A reader: it takes the facts of one workspace, in order, and remembers on the server
// how far it has come. Run it again and it goes on there.
//
//   node reader.js --workspace demo --durable demo-printer

import { parseArgs } from "node:util";
import { connect } from "@nats-io/transport-node";
import { Reader } from "./facts.js";

const { values: flags } = parseArgs({
  options: {
    durable: { type: "string" },
    server: { type: "string", default: "127.0.0.1:4222" },
    workspace: { type: "string", default: "default" },
  },
});
if (!flags.durable) {
  console.error("reader: --durable NAME is required");
  process.exit(2);
}

const nc = await connect({ servers: flags.server, name: "reader.js", maxReconnectAttempts: -1 });
const reader = new Reader(nc, flags.workspace, flags.durable);
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => reader.stop());

await reader.run((fact, text) => {
  // What is printed twice after a crash was not acknowledged the first time. To have
  // each effect once, keep fact.seq with the effect, in one transaction.
  console.log(text);
});
console.error(`reader: stopped behind ${reader.cursor.seq}`);
await nc.drain();
