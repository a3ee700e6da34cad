-- Integer keys only: uniqueness of users and keys lives in the rules and is re-checked at every load. A second index
-- would cost two thirds of the insert rate.

CREATE TABLE coupon (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    limit_count  INTEGER NOT NULL,
    opens_at     INTEGER, -- instants are microseconds of Unix time
    expires_at   INTEGER,
    redeem_until INTEGER,
    title        TEXT,
    room         TEXT,
    voucher_key  BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    deleted_at   INTEGER
) STRICT;

CREATE TABLE claim (
    id           INTEGER PRIMARY KEY, -- coupon id << 32 | serial
    user         TEXT    NOT NULL,
    issued_at    INTEGER NOT NULL,
    attributes   TEXT,
    request_key  BLOB,
    request_body INTEGER
) STRICT;

CREATE TABLE redemption (
    id           INTEGER PRIMARY KEY, -- that of the claim
    redeemed_at  INTEGER NOT NULL,
    request_key  BLOB,
    request_body INTEGER
) STRICT;
