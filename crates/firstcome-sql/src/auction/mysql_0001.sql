-- Members, what is sold for points, bids, and the record of every movement. Amounts are points, instants microseconds of
-- Unix time, names bytes in the order of their codes. Rows refer to each other by numbers without foreign keys: nothing
-- here is ever deleted, and a check per written row would cost as much as the row. Every step can be done twice: a
-- statement that creates a table cannot be undone together with those before it.
CREATE TABLE IF NOT EXISTS firstcome_member (
  id bigint AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(128) NOT NULL UNIQUE,
  total bigint NOT NULL DEFAULT 0,
  held bigint NOT NULL DEFAULT 0,
  records bigint NOT NULL DEFAULT 0 CHECK (0 <= records),
  last_at bigint NOT NULL DEFAULT -62135596800000000,
  chain BINARY(32) NOT NULL DEFAULT 0x0000000000000000000000000000000000000000000000000000000000000000,
  CHECK (0 <= held AND held <= total AND total <= 9007199254740991)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_record (
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
  chain BINARY(32) NOT NULL,
  PRIMARY KEY (member, number),
  CHECK (0 <= held AND held <= total AND total <= 9007199254740991)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_listing (
  id bigint AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(128) NOT NULL UNIQUE,
  owner_id bigint NOT NULL,
  owner VARBINARY(128) NOT NULL,
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
  highest VARBINARY(128),
  highest_price bigint CHECK (0 < highest_price),
  highest_at bigint,
  -- 0 open, 1 ended, 2 sold, 3 unsold; since when, and to whom.
  phase bigint NOT NULL CHECK (phase BETWEEN 0 AND 3),
  phase_at bigint,
  buyer VARBINARY(128),
  version bigint NOT NULL CHECK (0 < version),
  last_at bigint NOT NULL,
  -- The number that the transaction has drawn which wrote this version.
  writer bigint NOT NULL,
  -- When time has something to do.
  due_at bigint,
  KEY firstcome_listing_due (due_at, id),
  CHECK ((kind = 1) = (ends_at IS NOT NULL)),
  CHECK ((bids = 0) = (highest_id IS NULL)),
  CHECK ((phase = 2) = (buyer IS NOT NULL))
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_bid (
  listing bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  member bigint NOT NULL,
  price bigint NOT NULL CHECK (0 < price),
  at bigint NOT NULL,
  -- The end of the auction and the version of the listing after it.
  ends_at bigint NOT NULL,
  fence bigint NOT NULL,
  PRIMARY KEY (listing, number)
) ENGINE = InnoDB;

-- Requests with an idempotency key that had an effect: of a listing (kind 1; number of the bid, 0 for the sale), or of a
-- member's points (kind 2; number of the record).
CREATE TABLE IF NOT EXISTS firstcome_request (
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  scope bigint NOT NULL,
  request BINARY(16) NOT NULL,
  body bigint NOT NULL,
  number bigint NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (kind, scope, request)
) ENGINE = InnoDB;

-- One row that is written only to make durable what was read: InnoDB shows a commit before it is on disk, and syncs in order.
CREATE TABLE IF NOT EXISTS firstcome_flush (
  id bigint PRIMARY KEY,
  flushed bigint NOT NULL
) ENGINE = InnoDB;

INSERT INTO firstcome_flush (id, flushed) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = id;
