-- Serials from this one on have codes that are bound to their claim; those before it keep the codes that were told.
ALTER TABLE firstcome_coupon ADD COLUMN codes_bound_from bigint NOT NULL DEFAULT 1;
UPDATE firstcome_coupon SET codes_bound_from = issued + 1;

-- The generation that began when an operator accepted that acknowledged rows are gone; 0 if none ever did.
ALTER TABLE firstcome_coupon ADD COLUMN loss_accepted bigint NOT NULL DEFAULT 0;
ALTER TABLE firstcome_room ADD COLUMN loss_accepted bigint NOT NULL DEFAULT 0;
