-- Instants are microseconds: of Unix time, or (until_steady) of the store's steady time, which nobody can set.

CREATE TABLE room (
    id              INTEGER PRIMARY KEY,
    name            TEXT    NOT NULL UNIQUE,
    admit_count     INTEGER,
    admit_every_ms  INTEGER,
    max_active      INTEGER,
    max_waiting     INTEGER NOT NULL,
    waiting_ttl_ms  INTEGER NOT NULL,
    active_ttl_ms   INTEGER NOT NULL,
    claim_window_ms INTEGER NOT NULL,
    idle_ttl_ms     INTEGER,
    opens_at        INTEGER,
    paused          INTEGER NOT NULL,
    message         TEXT,
    target_url      TEXT,
    ticket_key      BLOB    NOT NULL,
    first           INTEGER NOT NULL, -- numbers before it are void
    reached         INTEGER NOT NULL, -- the lowest number that the line has not reached
    created_at      INTEGER NOT NULL,
    changed_at      INTEGER NOT NULL,
    closed_at       INTEGER
) STRICT;

CREATE TABLE ticket (
    id           INTEGER PRIMARY KEY, -- room id << 32 | number
    user         TEXT,
    joined_at    INTEGER NOT NULL,
    gone         INTEGER, -- 1 left, 2 expired
    request_key  BLOB,
    request_body INTEGER
) STRICT;

CREATE TABLE slot (
    id           INTEGER PRIMARY KEY, -- that of the ticket
    admission    INTEGER NOT NULL,
    admitted_at  INTEGER NOT NULL,
    taken        INTEGER NOT NULL, -- 0 offered, 1 taken
    until_steady INTEGER NOT NULL
) STRICT;

CREATE TABLE clock (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    wall   INTEGER NOT NULL,
    steady INTEGER NOT NULL
) STRICT;

CREATE TABLE pass_secret (
    id         INTEGER PRIMARY KEY,
    secret     BLOB    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
