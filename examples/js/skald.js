// What a client of Skald needs beside a NATS client: how ids become subjects, and
// how the events of a journal are digested. docs/contract.md has the rules.

import { createHash, randomBytes } from "node:crypto";

// A chain begins at ordinal 0 with this digest.
export const genesis = { ordinal: 0, digest: "0".repeat(64) };

// token writes an id as one token of a subject: each byte of its UTF-8 outside
// A-Z a-z 0-9 _ - becomes =XX.
export function token(id) {
  const bytes = new TextEncoder().encode(id);
  if (bytes.length < 1 || bytes.length > 256) {
    throw new RangeError(`id: must have 1 to 256 bytes, has ${bytes.length}`);
  }
  if (!id.isWellFormed() || /\p{Cc}/u.test(id)) {
    throw new RangeError("id: must be UTF-8 without control characters");
  }
  let out = "";
  for (const b of bytes) {
    const c = String.fromCharCode(b);
    out += /[A-Za-z0-9_-]/.test(c) ? c : "=" + b.toString(16).toUpperCase().padStart(2, "0");
  }
  return out;
}

// digest returns the digest of a relay event. The observation is text: compact JSON,
// exactly as it will be sent. Parsing and writing it again can change digits and
// escapes, and then the digest is another.
export function digest({ format = 1, ordinal, previousDigest, recordedAtMs, commandId, observation }) {
  let text = `{"ordinal":${ordinal}`;
  if (format === 1) text += `,"previous_digest":"${previousDigest}"`;
  text += `,"recorded_at_ms":${recordedAtMs}`;
  if (commandId != null) text += `,"command_id":${JSON.stringify(commandId)}`;
  text += `,"observation":${observation}}`;
  return createHash("sha256").update(`hel-relay-event-v${format}\0`).update(text).digest("hex");
}

// newTrace returns the W3C trace context of a new, sampled trace.
export function newTrace() {
  return `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`;
}

// page continues a chain: it returns the body of a projection message with one event
// for each observation (1 to 128), and the position at its end.
export function page(after, observations, recordedAtMs) {
  let { ordinal, digest: previousDigest } = after;
  const events = observations.map((o) => {
    const observation = JSON.stringify(o);
    ordinal++;
    const d = digest({ ordinal, previousDigest, recordedAtMs, observation });
    const text = `{"ordinal":${ordinal},"previous_digest":"${previousDigest}","digest":"${d}",` +
      `"recorded_at_ms":${recordedAtMs},"observation":${observation}}`;
    previousDigest = d;
    return text;
  });
  return {
    body: `{"after":${JSON.stringify(after)},"events":[${events.join(",")}]}`,
    end: { ordinal, digest: previousDigest },
  };
}
