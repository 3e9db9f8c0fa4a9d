-- Schema 2: INGEST that is not what it was. See goback.go.

-- The stored time of the first message that was read since reading began, or since the store
-- went back last; 0 if none was.
ALTER TABLE position ADD COLUMN since_time INTEGER NOT NULL DEFAULT 0;
UPDATE position SET since_time = 1 WHERE ingest_seq > 0;

-- Stretches of INGEST that were read before the store went back from them. A message up to
-- last_seq that was stored from from_time to last_time is one of them. back_seq is where
-- reading went on behind.
CREATE TABLE stretches (
    stretch_id INTEGER PRIMARY KEY,
    from_time INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    back_seq INTEGER NOT NULL
) STRICT;

-- A discarded entry keeps no payload and is not listed. It stays, so that what became of its
-- message can still be told.
ALTER TABLE rejects ADD COLUMN discarded INTEGER NOT NULL DEFAULT 0 CHECK (discarded IN (0, 1));

CREATE INDEX rejects_open ON rejects (reject_id) WHERE discarded = 0;
CREATE INDEX rejects_message ON rejects (ingest_seq, ingest_time);
CREATE INDEX rejects_irregular ON rejects (reject_id) WHERE discarded = 0 AND reason IN ('ingest_hole', 'ingest_trimmed', 'ingest_rolled_back', 'ingest_recreated');
