-- The same as for PostgreSQL.
CREATE TABLE IF NOT EXISTS firstcome_renewal (
  room bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  generation bigint NOT NULL CHECK (0 < generation),
  request varbinary(16) NOT NULL,
  PRIMARY KEY (room, number)
) ENGINE = InnoDB;
