-- Published heads, by the text of their object: "room NAME" or "coupon NAME". For a coupon `first` is its limit, `given` its
-- issued claims, and `front` is NULL.
CREATE TABLE head (
    object    TEXT    NOT NULL,
    sequence  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    given     INTEGER NOT NULL,
    front     INTEGER,
    previous  BLOB    NOT NULL,
    signature BLOB    NOT NULL,
    PRIMARY KEY (object, sequence)
) STRICT, WITHOUT ROWID;
