-- When the last purge ended, in microseconds of Unix time: the next one compares its clock with it.
CREATE TABLE purge (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    ended_at INTEGER NOT NULL
) STRICT;
