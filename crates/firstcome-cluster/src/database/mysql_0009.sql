-- The same as for PostgreSQL. This step may have been interrupted, so it looks for its column first.
SET @firstcome_step = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'firstcome_room' AND column_name = 'first_poll_ms') = 0,
  'ALTER TABLE firstcome_room ADD COLUMN first_poll_ms bigint',
  'DO 0');
PREPARE firstcome_step FROM @firstcome_step;
EXECUTE firstcome_step;
DEALLOCATE PREPARE firstcome_step;
