-- The keys of callers, as digests. A name has one current key, the one with the greatest number, and at most one more that is
-- accepted: the key before the last rotation.
CREATE TABLE firstcome_api_key (
  number bigint PRIMARY KEY CHECK (0 < number),
  name text COLLATE "C" NOT NULL,
  scope bigint NOT NULL CHECK (scope BETWEEN 1 AND 3),
  first_start bigint NOT NULL CHECK (first_start IN (0, 1)),
  digest bytea NOT NULL UNIQUE,
  caller bytea NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  request_key bytea,
  request_body bigint
);
