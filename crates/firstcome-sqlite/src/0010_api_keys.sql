-- The keys of callers, as digests. A name has one current key, the one with the greatest number, and at most one more that is
-- accepted: the key before the last rotation.
CREATE TABLE api_key (
    number       INTEGER PRIMARY KEY, -- never reused
    name         TEXT    NOT NULL,
    scope        TEXT    NOT NULL,    -- view, service or admin
    first_start  INTEGER NOT NULL,    -- 1 if the first start made it
    digest       BLOB    NOT NULL UNIQUE,
    caller       BLOB    NOT NULL,    -- whom it identifies; a rotation keeps it
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    request_key  BLOB,                -- the digest of the request that created it
    request_body INTEGER
) STRICT;
