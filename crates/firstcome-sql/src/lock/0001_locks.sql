-- Instants are microseconds of Unix time. Ids and numbers of requests are 64 bits, stored as signed integers.

CREATE TABLE firstcome_lock_version (version bigint NOT NULL);
INSERT INTO firstcome_lock_version VALUES (1);

-- The highest number that was drawn in each bucket. It outlives the locks: fences must not fall. A step locks its row.
CREATE TABLE firstcome_lock_bucket (
    id   bigint PRIMARY KEY,
    last bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO firstcome_lock_bucket SELECT id, 0 FROM generate_series(0, 255) AS id;

CREATE TABLE firstcome_lock_hold (
    lock       varchar(128) COLLATE "C" PRIMARY KEY,
    client     bigint NOT NULL,
    request    bigint NOT NULL,
    owner      varchar(128) COLLATE "C" NOT NULL,
    lease_ms   bigint NOT NULL,
    passes     bigint NOT NULL,
    fence      bigint NOT NULL,
    expires_us bigint NOT NULL,
    taken      bigint NOT NULL, -- 0 given while it waited and not heard of since, 1 known to the holder
    waiters    bigint NOT NULL  -- rows of the line: counting them would take a pass over it
);

CREATE TABLE firstcome_lock_waiter (
    lock     varchar(128) COLLATE "C" NOT NULL,
    number   bigint NOT NULL, -- the place in the order of arrival
    client   bigint NOT NULL,
    request  bigint NOT NULL,
    owner    varchar(128) COLLATE "C" NOT NULL,
    lease_ms bigint NOT NULL,
    passes   bigint NOT NULL,
    PRIMARY KEY (lock, number),
    UNIQUE (client, request, lock)
);

-- When each process that waits in a bucket was heard of.
CREATE TABLE firstcome_lock_life (
    bucket  bigint NOT NULL,
    client  bigint NOT NULL,
    number  bigint NOT NULL,
    seen_us bigint NOT NULL,
    PRIMARY KEY (bucket, client)
);

-- What was given up before it arrived.
CREATE TABLE firstcome_lock_void (
    bucket   bigint NOT NULL,
    client   bigint NOT NULL,
    request  bigint NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (bucket, client, request)
);
CREATE INDEX firstcome_lock_void_by_end ON firstcome_lock_void (bucket, until_us);
