-- Retention. Rows go in pages. A coupon keeps its row for good, with its name, its settings and how many claims it issued.
-- Whether Redis keeps nothing of a coupon that is over; 0 until a node has seen to it.
ALTER TABLE firstcome_coupon ADD COLUMN keys_gone bigint NOT NULL DEFAULT 0 CHECK (keys_gone IN (0, 1));
-- When a purge began to remove the claims of a coupon; NULL if none did. Serials up to purged_to have no rows any more.
ALTER TABLE firstcome_coupon ADD COLUMN purged_at bigint;
ALTER TABLE firstcome_coupon ADD COLUMN purged_to bigint NOT NULL DEFAULT 0;

-- Every number of a room below gone_before is gone, whether a row says so or not. So is every number below gone_mark, since
-- gone_mark_at or before: a later purge makes gone_before of it.
ALTER TABLE firstcome_room ADD COLUMN gone_before bigint NOT NULL DEFAULT 1;
ALTER TABLE firstcome_room ADD COLUMN gone_mark bigint;
ALTER TABLE firstcome_room ADD COLUMN gone_mark_at bigint;

-- The node that purges, until when it may without being heard of, and the last purge that came to its end. One row.
CREATE TABLE firstcome_purge (
  id bigint PRIMARY KEY CHECK (id = 1),
  node text COLLATE "C" NOT NULL,
  until_at bigint NOT NULL,
  finished_at bigint
);

INSERT INTO firstcome_purge (id, node, until_at) VALUES (1, '', 0);
