import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { digest, genesis, page, token } from "./skald.js";

const { vectors } = JSON.parse(readFileSync(new URL("../../internal/contract/digest-vectors.json", import.meta.url), "utf8"));

test("digests are those of the vectors", () => {
  assert.ok(vectors.length > 5);
  for (const v of vectors) {
    const got = digest({
      format: v.format,
      ordinal: v.ordinal,
      previousDigest: v.previous_digest,
      recordedAtMs: v.recorded_at_ms,
      commandId: v.command_id,
      observation: v.observation_bytes,
    });
    assert.equal(got, v.digest, JSON.stringify(v));
  }
});

test("a page continues the chain", () => {
  const first = page(genesis, [{ type: "a" }, { type: "b" }], 1);
  const second = page(first.end, [{ type: "c" }], 2);
  const events = [...JSON.parse(first.body).events, ...JSON.parse(second.body).events];
  assert.deepEqual(events.map((e) => e.ordinal), [1, 2, 3]);
  assert.equal(events[0].previous_digest, genesis.digest);
  assert.equal(events[2].previous_digest, events[1].digest);
  assert.equal(second.end.digest, events[2].digest);
  assert.deepEqual(JSON.parse(second.body).after, first.end);
});

test("an id is one token", () => {
  for (const [id, want] of [["build-17_a", "build-17_a"], ["my job v1.2", "my=20job=20v1=2E2"], ["é", "=C3=A9"], ["a=b", "a=3Db"], ["*", "=2A"]]) {
    assert.equal(token(id), want);
  }
  for (const id of ["", "x".repeat(257), "a\nb", "\ud800"]) assert.throws(() => token(id), RangeError);
});
