// A worker: it runs one session and says what happens in it.
//
//   node worker.js --session build-17 --workspace demo --turns 3
//
// On a bus of several tenants, with the seed that skald auth write made for it:
//
//   node worker.js --server tls://node1:4222 --nkey worker.nk --ca ca.pem …

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";
import { Session } from "./session.js";
import { newTrace } from "./skald.js";

const { values: flags } = parseArgs({
  options: {
    ca: { type: "string" },
    nkey: { type: "string" },
    server: { type: "string", default: "127.0.0.1:4222" },
    session: { type: "string" },
    traceparent: { type: "string" },
    turns: { type: "string", default: "3" },
    workspace: { type: "string", default: "default" },
  },
});
const turns = Number(flags.turns);
if (!flags.session || !Number.isInteger(turns)) {
  console.error("worker: --session ID is required, --turns must be a number");
  process.exit(2);
}

const options = { servers: flags.server.split(","), name: "worker.js", maxReconnectAttempts: -1 };
if (flags.nkey) options.authenticator = nkeyAuthenticator(new TextEncoder().encode(readFileSync(flags.nkey, "utf8").trim()));
if (flags.ca) options.tls = { caFile: flags.ca };
const nc = await connect(options);
const session = await Session.open(nc, flags.workspace, flags.session);
// A run is part of the trace that it was started in, or begins one.
session.traceparent = flags.traceparent ?? newTrace();
console.error(`worker: ${flags.session} stands at ordinal ${session.frontier.ordinal}`);

for (let turn = 1; turn <= turns; turn++) {
  const command_id = `${session.publisher}-${turn}`;
  await session.activity({ state: "working", turn });
  await session.journal([
    { type: "command_queued", data: { command_id, command: { type: "prompt", data: { prompt: [] } }, created_at_ms: Date.now() } },
    { type: "command_started", data: { command_id, started_at_ms: Date.now() } },
  ]);
  if (turn % 3 === 0) await session.error(`turn ${turn}: the build failed`);
  await session.journal([
    { type: "command_completed", data: { command_id, outcome: { type: "prompt", data: { stop_reason: "end_turn" } }, completed_at_ms: Date.now() } },
  ]);
  await session.activity({ state: "idle", turn });
}

await session.settle();
console.log(JSON.stringify({ session: flags.session, publisher: session.publisher, turns, traceparent: session.traceparent, frontier: session.frontier }));
await nc.drain();
