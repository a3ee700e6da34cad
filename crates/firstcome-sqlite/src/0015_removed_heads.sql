-- Up to which sequence a purge removed the heads of an object. The first head that is left comes next.
CREATE TABLE head_removed (
    object   TEXT    PRIMARY KEY,
    sequence INTEGER NOT NULL CHECK (0 < sequence)
) STRICT, WITHOUT ROWID;
