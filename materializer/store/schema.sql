-- Schema 1.
--
-- Columns that end in _ms hold milliseconds since 1970, other times nanoseconds since 1970.
-- "seq" alone is a number of EVENTS, "ingest_seq" and "origin_seq" are sequences of INGEST.
--
-- An index ends with the table's own key, though it is not written: events_session is ordered by
-- session_pk and seq. Naming the key would store it twice.

-- The one row says which bus the store belongs to and how far it has read. All numbers that
-- status needs are kept here, so that nobody counts tables.
CREATE TABLE position (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT NOT NULL,                -- '' while the store belongs to no bus
    ingest_id TEXT NOT NULL,
    ingest_seq INTEGER NOT NULL,        -- the last message of INGEST that was read; 0 if none
    ingest_time INTEGER NOT NULL,       -- its stored time
    ingest_hash BLOB NOT NULL,          -- its hash, 8 bytes
    highest_time INTEGER NOT NULL,      -- the highest stored time of INGEST so far
    events_seq INTEGER NOT NULL,        -- the last number of EVENTS that was passed: latest_seq
    oldest_seq INTEGER NOT NULL,        -- rows below it are pruned
    applied INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    unprojected INTEGER NOT NULL,
    foreigners INTEGER NOT NULL,        -- messages in EVENTS that are not ours
    holes INTEGER NOT NULL,             -- sequences that INGEST lost
    sessions INTEGER NOT NULL,          -- sessions that readers see
    held INTEGER NOT NULL,              -- rows of held
    rejects INTEGER NOT NULL,           -- rows of rejects
    reject_bytes INTEGER NOT NULL       -- bytes of the payloads kept in rejects
) STRICT;

INSERT INTO position VALUES (1, '', '', 0, 0, zeroblob(8), 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

-- Messages that ended a commit, at most one a minute of INGEST's time, by which an INGEST that
-- was rolled back is noticed later.
CREATE TABLE marks (
    ingest_seq INTEGER PRIMARY KEY,
    ingest_time INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- Rows are never deleted, so keys ascend in the order in which sessions first appeared. A
-- tombstone is forgotten, not present, has no last_seq and no state; its event_count is what
-- is still to be removed. A row that is neither holds only the counts of rejected messages.
CREATE TABLE sessions (
    session_pk INTEGER PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    present INTEGER NOT NULL CHECK (present IN (0, 1)),
    forgotten INTEGER NOT NULL CHECK (forgotten IN (0, 1)),
    first_seq INTEGER NOT NULL,         -- of its rows in events; 0 if none
    last_seq INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    last_activity_at_ms INTEGER,
    held_pages INTEGER NOT NULL,
    view BLOB,
    chain BLOB,
    publishers BLOB
) STRICT;

CREATE UNIQUE INDEX sessions_key ON sessions (session_id, workspace_id);
CREATE INDEX sessions_active ON sessions (workspace_id, last_seq);
CREATE INDEX sessions_listed ON sessions (workspace_id) WHERE present = 1;
CREATE INDEX sessions_shown ON sessions (present) WHERE present = 1;

-- The facts, numbered by EVENTS. stored_at_ms is origin_time in milliseconds.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    session_pk INTEGER NOT NULL,
    type TEXT NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    origin_seq INTEGER NOT NULL,
    origin_time INTEGER NOT NULL,
    origin_index INTEGER NOT NULL,
    source TEXT NOT NULL,               -- what the fact was deduplicated by; '' if nothing
    trace TEXT,
    data TEXT NOT NULL
) STRICT;

CREATE INDEX events_session ON events (session_pk);

-- Bare event ids within the horizon. The id comes first so that ids made of a time append.
CREATE TABLE ids (
    event_id TEXT NOT NULL,
    session_pk INTEGER NOT NULL,
    hash BLOB NOT NULL,
    applied_time INTEGER NOT NULL,      -- highest_time when the id was applied
    ingest_seq INTEGER NOT NULL,
    PRIMARY KEY (event_id, session_pk)
) STRICT, WITHOUT ROWID;

-- What an operator has to look at. Ids are never used again.
CREATE TABLE rejects (
    reject_id INTEGER PRIMARY KEY AUTOINCREMENT,
    ingest_seq INTEGER NOT NULL,
    ingest_time INTEGER NOT NULL,
    session_pk INTEGER,                 -- NULL if the subject names none
    subject TEXT NOT NULL,
    class TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    publisher TEXT,
    publisher_seq INTEGER,
    event_id TEXT,
    payload BLOB,                       -- NULL if none is kept
    payload_size INTEGER NOT NULL,
    payload_hash BLOB                   -- SHA-256; NULL if there never was a payload
) STRICT;

CREATE INDEX rejects_session ON rejects (session_pk);
CREATE INDEX rejects_count ON rejects (session_pk, publisher, publisher_seq) WHERE publisher IS NOT NULL;
CREATE INDEX rejects_event ON rejects (session_pk, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX rejects_kept ON rejects (reject_id) WHERE payload IS NOT NULL;

-- Pages that wait for a gap in their session's chain to fill.
CREATE TABLE held (
    session_pk INTEGER NOT NULL,
    first_ordinal INTEGER NOT NULL,
    last_digest BLOB NOT NULL,
    last_ordinal INTEGER NOT NULL,
    ingest_seq INTEGER NOT NULL,
    ingest_time INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX held_page ON held (session_pk, first_ordinal, last_digest);

-- Forgotten sessions that still have rows in events; those rows are what is to be done.
CREATE TABLE removals (
    session_pk INTEGER PRIMARY KEY
) STRICT;
