-- What many nodes share: the deployment, coupons and their claims. Instants are microseconds of Unix time, names bytes in the
-- order of their codes. Rows refer to each other by numbers without foreign keys: nothing here is ever deleted, and a check per
-- written row would cost as much as the row.
CREATE TABLE firstcome_deployment (
  id bigint PRIMARY KEY CHECK (id = 1),
  -- Tells deployments apart.
  number bigint NOT NULL,
  -- Opens with the secret of this deployment only.
  probe bytea NOT NULL
);

-- What all nodes know and nobody else: wrapped by the secret of the deployment.
CREATE TABLE firstcome_secret (
  name text COLLATE "C" PRIMARY KEY,
  wrapped bytea NOT NULL
);

CREATE TABLE firstcome_coupon (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  limit_count bigint NOT NULL CHECK (0 < limit_count),
  opens_at bigint,
  expires_at bigint,
  redeem_until bigint,
  title bytea,
  room text COLLATE "C",
  -- When claims are acknowledged: 0 once they are stored, 1 once their place is certain.
  acknowledge bigint NOT NULL CHECK (acknowledge IN (0, 1)),
  -- The secret of its codes, wrapped.
  code_key bytea NOT NULL,
  deleted_at bigint,
  -- Of the settings.
  version bigint NOT NULL CHECK (0 < version),
  issued bigint NOT NULL DEFAULT 0,
  last_at bigint NOT NULL DEFAULT -62135596800000000,
  -- How far the stream of the sequencer is written down here: its generation, the last ticket, a digest of the entry with it.
  generation bigint NOT NULL DEFAULT 0,
  position bigint NOT NULL DEFAULT 0,
  anchor bigint NOT NULL DEFAULT 0,
  CHECK (0 <= issued AND issued <= limit_count),
  CHECK (issued <= position)
) WITH (fillfactor = 50);

CREATE TABLE firstcome_claim (
  coupon bigint NOT NULL,
  serial bigint NOT NULL CHECK (0 < serial),
  name text COLLATE "C" NOT NULL,
  issued_at bigint NOT NULL,
  attributes bytea,
  -- The number of the call that made it.
  tag bigint NOT NULL,
  PRIMARY KEY (coupon, serial)
);

CREATE UNIQUE INDEX firstcome_claim_name ON firstcome_claim (coupon, name);

CREATE TABLE firstcome_redemption (
  coupon bigint NOT NULL,
  serial bigint NOT NULL,
  redeemed_at bigint NOT NULL,
  PRIMARY KEY (coupon, serial)
);

-- Requests with an idempotency key that had an effect: a claim (kind 1) or a redemption (kind 2).
CREATE TABLE firstcome_coupon_request (
  coupon bigint NOT NULL,
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  request bytea NOT NULL CHECK (octet_length(request) = 16),
  body bigint NOT NULL,
  serial bigint NOT NULL,
  PRIMARY KEY (coupon, kind, request)
);

-- Entries of the sequencer's stream that nobody can read. Their callers are let in anew.
CREATE TABLE firstcome_dead_letter (
  coupon bigint NOT NULL,
  generation bigint NOT NULL,
  position bigint NOT NULL,
  at bigint NOT NULL,
  reason text NOT NULL,
  entry bytea NOT NULL,
  PRIMARY KEY (coupon, generation, position)
);

CREATE TABLE firstcome_room (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  admit_count bigint,
  admit_every_ms bigint,
  max_active bigint,
  max_waiting bigint NOT NULL,
  waiting_ttl_ms bigint NOT NULL,
  active_ttl_ms bigint NOT NULL,
  claim_window_ms bigint NOT NULL,
  idle_ttl_ms bigint,
  opens_at bigint,
  paused bigint NOT NULL CHECK (paused IN (0, 1)),
  message bytea,
  target_url bytea,
  -- The secret of its tickets, wrapped.
  ticket_key bytea NOT NULL,
  closed bigint NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
  -- Numbers before it are void; the line has reached all before that one; no number above the ceiling is drawn.
  first_number bigint NOT NULL DEFAULT 1,
  reached bigint NOT NULL DEFAULT 1,
  ceiling bigint NOT NULL,
  admissions bigint NOT NULL DEFAULT 0,
  -- What both clocks showed at that position.
  clock_wall bigint NOT NULL DEFAULT 0,
  clock_steady bigint NOT NULL DEFAULT 0,
  -- How far the log is written down here: its generation, the position, a digest of the room there.
  generation bigint NOT NULL DEFAULT 0,
  position bigint NOT NULL DEFAULT 0,
  digest bigint NOT NULL DEFAULT 0,
  CHECK (first_number <= ceiling + 1 AND reached <= ceiling + 1)
) WITH (fillfactor = 50);

-- Tickets that live and have a user or came with an idempotency key. Of others the ceiling is all that is kept: who has the
-- ticket has the place.
CREATE TABLE firstcome_ticket (
  room bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  name text COLLATE "C",
  joined_at bigint NOT NULL,
  request bytea CHECK (octet_length(request) = 16),
  body bigint,
  PRIMARY KEY (room, number)
);

-- Every admission. Ends are on the steady clock of the room.
CREATE TABLE firstcome_slot (
  room bigint NOT NULL,
  admission bigint NOT NULL CHECK (0 < admission),
  number bigint NOT NULL CHECK (0 < number),
  admitted_at bigint NOT NULL,
  taken bigint NOT NULL CHECK (taken IN (0, 1)),
  until_steady bigint NOT NULL,
  ended bigint NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
  PRIMARY KEY (room, admission)
);

-- Whoever is inside is few among all who were.
CREATE INDEX firstcome_slot_number ON firstcome_slot (room, ended, number);

-- Tickets that are gone: 1 left, 2 expired.
CREATE TABLE firstcome_gone (
  room bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  how bigint NOT NULL CHECK (how IN (1, 2)),
  PRIMARY KEY (room, number)
);

-- Secrets that sign passes, wrapped; the highest number is the newest.
CREATE TABLE firstcome_pass_secret (
  id bigint PRIMARY KEY,
  secret bytea NOT NULL,
  created_at bigint NOT NULL
);
