-- Published heads of rooms (kind 1) and coupons (kind 2). For a coupon the first number is its limit, the given ones are its issued
-- claims, and the front is NULL. No row is ever changed.
CREATE TABLE firstcome_head (
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  object bigint NOT NULL,
  sequence bigint NOT NULL CHECK (0 < sequence),
  at bigint NOT NULL,
  first_number bigint NOT NULL,
  given bigint NOT NULL,
  front bigint,
  previous bytea NOT NULL,
  signature bytea NOT NULL,
  PRIMARY KEY (kind, object, sequence)
);

CREATE INDEX firstcome_head_given ON firstcome_head (kind, object, given, sequence);
CREATE INDEX firstcome_head_at ON firstcome_head (kind, object, at, sequence);
