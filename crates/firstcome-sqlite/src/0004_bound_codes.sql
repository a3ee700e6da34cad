-- Serials from codes_bound_from on have codes that are bound to their claim; those before it keep the codes that were told.
ALTER TABLE coupon ADD COLUMN codes_bound_from INTEGER NOT NULL DEFAULT 1 CHECK (0 < codes_bound_from);
UPDATE coupon SET codes_bound_from = 1 + coalesce(
    (SELECT max(claim.id) & 4294967295 FROM claim WHERE claim.id BETWEEN coupon.id << 32 AND (coupon.id << 32) | 4294967295), 0);
