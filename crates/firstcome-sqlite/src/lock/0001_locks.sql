-- Instants are microseconds of Unix time. Ids and numbers of requests are 64 bits, stored as signed integers.

-- The highest number that was drawn in each bucket. It outlives the locks: fences must not fall.
CREATE TABLE bucket (
    id   INTEGER PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT;

CREATE TABLE hold (
    lock       TEXT    PRIMARY KEY,
    client     INTEGER NOT NULL,
    request    INTEGER NOT NULL,
    owner      TEXT    NOT NULL,
    lease_ms   INTEGER NOT NULL,
    passes     INTEGER NOT NULL,
    fence      INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    taken      INTEGER NOT NULL, -- 0 given while it waited and not heard of since, 1 known to the holder
    waiters    INTEGER NOT NULL  -- rows of `waiter`: counting them would take a pass over the line
) STRICT, WITHOUT ROWID;

CREATE TABLE waiter (
    lock     TEXT    NOT NULL,
    number   INTEGER NOT NULL, -- the place in the order of arrival
    client   INTEGER NOT NULL,
    request  INTEGER NOT NULL,
    owner    TEXT    NOT NULL,
    lease_ms INTEGER NOT NULL,
    passes   INTEGER NOT NULL,
    PRIMARY KEY (lock, number)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX waiter_by_request ON waiter (client, request, lock);

CREATE TABLE life (
    bucket  INTEGER NOT NULL,
    client  INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    seen_us INTEGER NOT NULL,
    PRIMARY KEY (bucket, client)
) STRICT, WITHOUT ROWID;

CREATE TABLE void (
    bucket   INTEGER NOT NULL,
    client   INTEGER NOT NULL,
    request  INTEGER NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (bucket, client, request)
) STRICT, WITHOUT ROWID;

CREATE INDEX void_by_end ON void (until_us);

-- What signs the handles of those who hold locks through a service. They must outlive it, as the holds do.
CREATE TABLE secret (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    bytes BLOB    NOT NULL CHECK (length(bytes) = 32)
) STRICT;
