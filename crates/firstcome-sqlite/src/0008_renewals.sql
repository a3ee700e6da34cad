-- The last renewal of each living ticket that was renewed. Tickets of earlier generations are void.
CREATE TABLE renewal (
    id          INTEGER PRIMARY KEY, -- that of the ticket
    generation  INTEGER NOT NULL,    -- 1 for the first renewal
    request_key BLOB    NOT NULL     -- the digest of the request that renewed it
) STRICT;
