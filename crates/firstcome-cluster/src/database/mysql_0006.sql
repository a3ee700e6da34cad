-- The same as for PostgreSQL.
CREATE TABLE IF NOT EXISTS firstcome_head (
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  object bigint NOT NULL,
  sequence bigint NOT NULL CHECK (0 < sequence),
  at bigint NOT NULL,
  first_number bigint NOT NULL,
  given bigint NOT NULL,
  front bigint,
  previous BINARY(32) NOT NULL,
  signature BINARY(64) NOT NULL,
  PRIMARY KEY (kind, object, sequence),
  INDEX firstcome_head_given (kind, object, given, sequence),
  INDEX firstcome_head_at (kind, object, at, sequence)
) ENGINE = InnoDB;
