-- The same as for PostgreSQL.
CREATE TABLE IF NOT EXISTS firstcome_api_key (
  number bigint PRIMARY KEY CHECK (0 < number),
  name VARBINARY(128) NOT NULL,
  scope bigint NOT NULL CHECK (scope BETWEEN 1 AND 3),
  first_start bigint NOT NULL CHECK (first_start IN (0, 1)),
  digest BINARY(32) NOT NULL,
  caller BINARY(16) NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  request_key BINARY(16),
  request_body bigint,
  UNIQUE INDEX firstcome_api_key_digest (digest)
) ENGINE = InnoDB;
