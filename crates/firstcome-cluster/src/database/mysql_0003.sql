-- The same as for PostgreSQL.
CREATE TABLE IF NOT EXISTS firstcome_appearance (
  room bigint PRIMARY KEY,
  version bigint NOT NULL,
  appearance MEDIUMBLOB NOT NULL
) ENGINE = InnoDB;
