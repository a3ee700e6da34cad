-- Members, what is sold for points, bids, and the record of every movement. Amounts are points, instants microseconds of
-- Unix time, names bytes in the order of their codes. Rows refer to each other by numbers without foreign keys: nothing
-- here is ever deleted, and a check per written row would cost as much as the row.
CREATE TABLE firstcome_member (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  total bigint NOT NULL DEFAULT 0,
  held bigint NOT NULL DEFAULT 0,
  records bigint NOT NULL DEFAULT 0 CHECK (0 <= records),
  last_at bigint NOT NULL DEFAULT -62135596800000000,
  chain bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (octet_length(chain) = 32),
  CHECK (0 <= held AND held <= total AND total <= 9007199254740991)
) WITH (fillfactor = 50);

CREATE TABLE firstcome_record (
  member bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  kind bigint NOT NULL CHECK (kind BETWEEN 1 AND 7),
  amount bigint NOT NULL CHECK (0 < amount),
  listing bigint,
  bid bigint,
  at bigint NOT NULL,
  total bigint NOT NULL,
  held bigint NOT NULL,
  -- The number that the transaction has drawn which made it.
  writer bigint NOT NULL,
  chain bytea NOT NULL CHECK (octet_length(chain) = 32),
  PRIMARY KEY (member, number),
  CHECK (0 <= held AND held <= total AND total <= 9007199254740991)
);

CREATE TABLE firstcome_listing (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  owner_id bigint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  price bigint NOT NULL CHECK (0 < price),
  starts_at bigint NOT NULL,
  -- 0 a fixed price, 1 an auction.
  kind bigint NOT NULL CHECK (kind IN (0, 1)),
  ends_at bigint,
  min_increment bigint CHECK (0 < min_increment),
  extend_window_ms bigint,
  extend_by_ms bigint,
  extend_max_count bigint,
  settle_within_ms bigint,
  effective_ends_at bigint NOT NULL,
  extensions bigint NOT NULL CHECK (0 <= extensions),
  bids bigint NOT NULL CHECK (0 <= bids),
  highest_id bigint,
  highest text COLLATE "C",
  highest_price bigint CHECK (0 < highest_price),
  highest_at bigint,
  -- 0 open, 1 ended, 2 sold, 3 unsold; since when, and to whom.
  phase bigint NOT NULL CHECK (phase BETWEEN 0 AND 3),
  phase_at bigint,
  buyer text COLLATE "C",
  version bigint NOT NULL CHECK (0 < version),
  last_at bigint NOT NULL,
  -- The number that the transaction has drawn which wrote this version.
  writer bigint NOT NULL,
  -- When time has something to do.
  due_at bigint,
  CHECK ((kind = 1) = (ends_at IS NOT NULL)),
  CHECK ((bids = 0) = (highest_id IS NULL)),
  CHECK ((phase = 2) = (buyer IS NOT NULL))
) WITH (fillfactor = 50);

CREATE INDEX firstcome_listing_due ON firstcome_listing (due_at, id) WHERE due_at IS NOT NULL;

CREATE TABLE firstcome_bid (
  listing bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  member bigint NOT NULL,
  price bigint NOT NULL CHECK (0 < price),
  at bigint NOT NULL,
  -- The end of the auction and the version of the listing after it.
  ends_at bigint NOT NULL,
  fence bigint NOT NULL,
  PRIMARY KEY (listing, number)
);

-- Requests with an idempotency key that had an effect: of a listing (kind 1; number of the bid, 0 for the sale), or of a
-- member's points (kind 2; number of the record).
CREATE TABLE firstcome_request (
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  scope bigint NOT NULL,
  request bytea NOT NULL CHECK (octet_length(request) = 16),
  body bigint NOT NULL,
  number bigint NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (kind, scope, request)
);
