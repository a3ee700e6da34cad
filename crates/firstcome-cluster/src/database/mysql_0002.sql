-- The same as for PostgreSQL. A column cannot be added "if it does not exist" on MySQL, so each is looked for first: this step
-- may have been interrupted.
-- Serials from codes_bound_from on have codes that are bound to their claim; those before it keep the codes that were told.
-- loss_accepted is the generation that began when an operator accepted that acknowledged rows are gone; 0 if none ever did.
SET @firstcome_step = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'firstcome_coupon' AND column_name = 'codes_bound_from') = 0,
  'ALTER TABLE firstcome_coupon ADD COLUMN codes_bound_from bigint NOT NULL DEFAULT 1, ADD COLUMN loss_accepted bigint NOT NULL DEFAULT 0',
  'DO 0');
PREPARE firstcome_step FROM @firstcome_step;
EXECUTE firstcome_step;
DEALLOCATE PREPARE firstcome_step;
UPDATE firstcome_coupon SET codes_bound_from = issued + 1;
SET @firstcome_step = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'firstcome_room' AND column_name = 'loss_accepted') = 0,
  'ALTER TABLE firstcome_room ADD COLUMN loss_accepted bigint NOT NULL DEFAULT 0',
  'DO 0');
PREPARE firstcome_step FROM @firstcome_step;
EXECUTE firstcome_step;
DEALLOCATE PREPARE firstcome_step;
