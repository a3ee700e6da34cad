-- What a purge removes, and what stays to say so. Instants are microseconds of Unix time.

ALTER TABLE ticket ADD COLUMN gone_at INTEGER; -- NULL for a ticket that was gone before this step
ALTER TABLE room ADD COLUMN gone_before INTEGER NOT NULL DEFAULT 0; -- numbers before it are gone, and have no rows

-- Since when rows of tickets have `gone_at`. Tickets that were gone before count as gone since then.
CREATE TABLE departure (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    noted_since INTEGER NOT NULL
) STRICT;

ALTER TABLE coupon ADD COLUMN purged_at INTEGER; -- when a purge began to remove its claims
ALTER TABLE coupon ADD COLUMN purged_issued INTEGER; -- how many claims it had then; those that are there are the last ones
