-- The tables of the example, made anew each time.
DROP TABLE IF EXISTS example_member, example_auction, example_record;
CREATE TABLE example_member (
    id        TEXT PRIMARY KEY,
    total     BIGINT NOT NULL,
    available BIGINT NOT NULL CHECK (0 <= available AND available <= total)
);
CREATE TABLE example_auction (
    id      BIGINT PRIMARY KEY,
    owner   TEXT NOT NULL,
    price   BIGINT NOT NULL,
    ends_at TIMESTAMPTZ NOT NULL,
    bidder  TEXT,
    bid     BIGINT,
    sold    BOOLEAN NOT NULL DEFAULT false,
    version BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE example_record (kind TEXT, member TEXT, total BIGINT, available BIGINT, auction BIGINT);
INSERT INTO example_member VALUES ('olga', 0, 0), ('ann', 300, 300), ('bob', 200, 200), ('cid', 50, 50);
INSERT INTO example_auction (id, owner, price, ends_at) VALUES (7, 'olga', 100, clock_timestamp() + interval '1 second');
