-- Schema 3: several stores on one bus.

-- Who the store is among those of its bus. The id is made once and stays with the file.
CREATE TABLE replica (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    store_id TEXT NOT NULL              -- 16 hex digits, random
) STRICT;

INSERT INTO replica VALUES (1, lower(hex(randomblob(8))));
