-- What takes the place of records that a purge removed: the first ones of a member, up to this number.
CREATE TABLE anchor (
    member  INTEGER PRIMARY KEY,
    number  INTEGER NOT NULL,
    total   INTEGER NOT NULL, -- after the last removed record, as held
    held    INTEGER NOT NULL CHECK (0 <= held AND held <= total),
    at      INTEGER NOT NULL, -- of the last removed record
    charged INTEGER NOT NULL, -- charges less refunds of all removed records
    chain   BLOB    NOT NULL  -- of the last removed record, or made from the rest after an erasure
) STRICT;
