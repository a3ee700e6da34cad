-- Up to which sequence a purge removed the heads of a room (kind 1) or coupon (kind 2). The first head that is left comes next.
CREATE TABLE firstcome_head_removed (
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  object bigint NOT NULL,
  sequence bigint NOT NULL CHECK (0 < sequence),
  PRIMARY KEY (kind, object)
);
