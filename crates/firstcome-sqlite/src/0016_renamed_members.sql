-- Members whose name was erased, while not all of their records are chained again. The last page of them removes the row.
CREATE TABLE renaming (
    member  INTEGER PRIMARY KEY,
    before  TEXT    NOT NULL,                     -- the name that the records after `done` up to `last` are chained under
    last    INTEGER NOT NULL CHECK (0 < last),
    done    INTEGER NOT NULL CHECK (0 <= done),   -- the last record that is chained again, or the anchor; beyond `last` if records came since
    old     BLOB    NOT NULL,                     -- the chain that it had
    renewed BLOB    NOT NULL                      -- the chain that it has
) STRICT;
