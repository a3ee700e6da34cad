-- The same as for PostgreSQL.
CREATE TABLE IF NOT EXISTS firstcome_head_removed (
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  object bigint NOT NULL,
  sequence bigint NOT NULL CHECK (0 < sequence),
  PRIMARY KEY (kind, object)
) ENGINE = InnoDB;
