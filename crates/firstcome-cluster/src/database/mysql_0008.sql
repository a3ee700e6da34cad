-- The same as for PostgreSQL. This step may have been interrupted, so it looks for its columns first.
SET @firstcome_step = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'firstcome_coupon' AND column_name = 'purged_at') = 0,
  'ALTER TABLE firstcome_coupon ADD COLUMN keys_gone bigint NOT NULL DEFAULT 0 CHECK (keys_gone IN (0, 1)), ADD COLUMN purged_at bigint, ADD COLUMN purged_to bigint NOT NULL DEFAULT 0',
  'DO 0');
PREPARE firstcome_step FROM @firstcome_step;
EXECUTE firstcome_step;
DEALLOCATE PREPARE firstcome_step;
SET @firstcome_step = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'firstcome_room' AND column_name = 'gone_before') = 0,
  'ALTER TABLE firstcome_room ADD COLUMN gone_before bigint NOT NULL DEFAULT 1, ADD COLUMN gone_mark bigint, ADD COLUMN gone_mark_at bigint',
  'DO 0');
PREPARE firstcome_step FROM @firstcome_step;
EXECUTE firstcome_step;
DEALLOCATE PREPARE firstcome_step;
CREATE TABLE IF NOT EXISTS firstcome_purge (
  id bigint PRIMARY KEY CHECK (id = 1),
  node VARBINARY(128) NOT NULL,
  until_at bigint NOT NULL,
  finished_at bigint
) ENGINE = InnoDB;
INSERT IGNORE INTO firstcome_purge (id, node, until_at) VALUES (1, '', 0);
