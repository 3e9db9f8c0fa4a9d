-- Schema 4: forgotten sessions whose bytes are overwritten, or that come back (erase.go,
-- removal.go); a store that came out of a backup (replica.go).

-- The message of INGEST that forgot the session and asked for that; 0 if none did.
ALTER TABLE sessions ADD COLUMN erase_seq INTEGER NOT NULL DEFAULT 0;

-- To go through the tombstones, whose messages an EVENTS that was set back has again.
CREATE INDEX sessions_forgotten ON sessions (forgotten) WHERE forgotten = 1;

-- Sessions to be overwritten of which bytes may be left outside of events. cut is 1 once neither file nor log
-- have any, so that checkpoints and INGEST remain.
CREATE TABLE erasures (
    session_pk INTEGER PRIMARY KEY,
    cut INTEGER NOT NULL CHECK (cut IN (0, 1))
) STRICT;

-- 1 from a restore until the table has come as far as EVENTS: numbers may have been seen
-- of which the table does not know.
ALTER TABLE replica ADD COLUMN restored INTEGER NOT NULL DEFAULT 0 CHECK (restored IN (0, 1));
