-- The same as for PostgreSQL. This step may have been interrupted, so it looks for its columns first.
SET @firstcome_step = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'firstcome_room' AND column_name = 'draws') = 0,
  'ALTER TABLE firstcome_room ADD COLUMN draws bigint NOT NULL DEFAULT 0 CHECK (draws IN (0, 1)), ADD COLUMN draw_seed varbinary(32), ADD COLUMN draw_first bigint, ADD COLUMN draw_entrants bigint, ADD COLUMN drawn_at bigint',
  'DO 0');
PREPARE firstcome_step FROM @firstcome_step;
EXECUTE firstcome_step;
DEALLOCATE PREPARE firstcome_step;
