-- Instants are microseconds of Unix time. Balances lie beside the records that they are the sums of, so that a start reads members, not their history.

CREATE TABLE member (
    id      INTEGER PRIMARY KEY,
    name    TEXT    NOT NULL UNIQUE,
    total   INTEGER NOT NULL,
    held    INTEGER NOT NULL CHECK (0 <= held AND held <= total),
    records INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    chain   BLOB    NOT NULL
) STRICT;

CREATE TABLE record (
    id           INTEGER PRIMARY KEY, -- member id << 36 | number
    kind         INTEGER NOT NULL, -- 1 charge, 2 refund, 3 hold, 4 release, 5 capture, 6 purchase, 7 sold
    amount       INTEGER NOT NULL,
    listing      INTEGER,
    bid          INTEGER,
    at           INTEGER NOT NULL,
    total        INTEGER NOT NULL, -- after it, as held
    held         INTEGER NOT NULL,
    chain        BLOB    NOT NULL,
    request_key  BLOB,
    request_body INTEGER
) STRICT;

CREATE INDEX record_key ON record (at) WHERE request_key IS NOT NULL;

CREATE TABLE listing (
    id                INTEGER PRIMARY KEY,
    name              TEXT    NOT NULL UNIQUE,
    owner             TEXT    NOT NULL,
    price             INTEGER NOT NULL,
    starts_at         INTEGER NOT NULL,
    ends_at           INTEGER, -- NULL: a fixed price
    min_increment     INTEGER,
    extend_window_ms  INTEGER,
    extend_by_ms      INTEGER,
    extend_max_count  INTEGER,
    settle_within_ms  INTEGER,
    effective_ends_at INTEGER NOT NULL,
    extensions        INTEGER NOT NULL,
    bids              INTEGER NOT NULL,
    phase             INTEGER NOT NULL, -- 0 open, 1 ended, 2 sold, 3 unsold
    phase_at          INTEGER,
    buyer             TEXT,
    sold_for          INTEGER,
    request_key       BLOB, -- of the purchase
    request_body      INTEGER,
    version           INTEGER NOT NULL,
    last_at           INTEGER NOT NULL
) STRICT;

CREATE TABLE bid (
    id           INTEGER PRIMARY KEY, -- listing id << 32 | number
    member       INTEGER NOT NULL,
    price        INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    ends_at      INTEGER NOT NULL, -- of the auction, after it
    fence        INTEGER NOT NULL,
    request_key  BLOB,
    request_body INTEGER
) STRICT;

CREATE INDEX bid_key ON bid (id) WHERE request_key IS NOT NULL;
