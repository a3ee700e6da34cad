-- What many nodes share: the deployment, coupons and their claims. Instants are microseconds of Unix time, names bytes in the
-- order of their codes. Rows refer to each other by numbers without foreign keys: nothing here is ever deleted, and a check per
-- written row would cost as much as the row. Every step can be done twice: a statement that creates a table cannot be undone
-- together with those before it.
CREATE TABLE IF NOT EXISTS firstcome_deployment (
  id bigint PRIMARY KEY CHECK (id = 1),
  -- Tells deployments apart.
  number bigint NOT NULL,
  -- Opens with the secret of this deployment only.
  probe VARBINARY(128) NOT NULL
) ENGINE = InnoDB;

-- What all nodes know and nobody else: wrapped by the secret of the deployment.
CREATE TABLE IF NOT EXISTS firstcome_secret (
  name VARBINARY(128) PRIMARY KEY,
  wrapped VARBINARY(128) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_coupon (
  id bigint AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(128) NOT NULL UNIQUE,
  limit_count bigint NOT NULL CHECK (0 < limit_count),
  opens_at bigint,
  expires_at bigint,
  redeem_until bigint,
  title VARBINARY(256),
  room VARBINARY(128),
  -- When claims are acknowledged: 0 once they are stored, 1 once their place is certain.
  acknowledge bigint NOT NULL CHECK (acknowledge IN (0, 1)),
  -- The secret of its codes, wrapped.
  code_key VARBINARY(128) NOT NULL,
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
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_claim (
  coupon bigint NOT NULL,
  serial bigint NOT NULL CHECK (0 < serial),
  name VARBINARY(128) NOT NULL,
  issued_at bigint NOT NULL,
  attributes VARBINARY(1024),
  -- The number of the call that made it.
  tag bigint NOT NULL,
  PRIMARY KEY (coupon, serial),
  UNIQUE KEY firstcome_claim_name (coupon, name)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_redemption (
  coupon bigint NOT NULL,
  serial bigint NOT NULL,
  redeemed_at bigint NOT NULL,
  PRIMARY KEY (coupon, serial)
) ENGINE = InnoDB;

-- Requests with an idempotency key that had an effect: a claim (kind 1) or a redemption (kind 2).
CREATE TABLE IF NOT EXISTS firstcome_coupon_request (
  coupon bigint NOT NULL,
  kind bigint NOT NULL CHECK (kind IN (1, 2)),
  request BINARY(16) NOT NULL,
  body bigint NOT NULL,
  serial bigint NOT NULL,
  PRIMARY KEY (coupon, kind, request)
) ENGINE = InnoDB;

-- Entries of the sequencer's stream that nobody can read. Their callers are let in anew.
CREATE TABLE IF NOT EXISTS firstcome_dead_letter (
  coupon bigint NOT NULL,
  generation bigint NOT NULL,
  position bigint NOT NULL,
  at bigint NOT NULL,
  reason VARBINARY(256) NOT NULL,
  entry LONGBLOB NOT NULL,
  PRIMARY KEY (coupon, generation, position)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS firstcome_room (
  id bigint AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(128) NOT NULL UNIQUE,
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
  message VARBINARY(2048),
  target_url VARBINARY(2048),
  -- The secret of its tickets, wrapped.
  ticket_key VARBINARY(128) NOT NULL,
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
) ENGINE = InnoDB;

-- Tickets that live and have a user or came with an idempotency key. Of others the ceiling is all that is kept: who has the
-- ticket has the place.
CREATE TABLE IF NOT EXISTS firstcome_ticket (
  room bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  name VARBINARY(128),
  joined_at bigint NOT NULL,
  request BINARY(16),
  body bigint,
  PRIMARY KEY (room, number)
) ENGINE = InnoDB;

-- Every admission. Ends are on the steady clock of the room.
CREATE TABLE IF NOT EXISTS firstcome_slot (
  room bigint NOT NULL,
  admission bigint NOT NULL CHECK (0 < admission),
  number bigint NOT NULL CHECK (0 < number),
  admitted_at bigint NOT NULL,
  taken bigint NOT NULL CHECK (taken IN (0, 1)),
  until_steady bigint NOT NULL,
  ended bigint NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
  PRIMARY KEY (room, admission),
  -- Whoever is inside is few among all who were.
  KEY firstcome_slot_number (room, ended, number)
) ENGINE = InnoDB;

-- Tickets that are gone: 1 left, 2 expired.
CREATE TABLE IF NOT EXISTS firstcome_gone (
  room bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  how bigint NOT NULL CHECK (how IN (1, 2)),
  PRIMARY KEY (room, number)
) ENGINE = InnoDB;

-- Secrets that sign passes, wrapped; the highest number is the newest.
CREATE TABLE IF NOT EXISTS firstcome_pass_secret (
  id bigint PRIMARY KEY,
  secret VARBINARY(128) NOT NULL,
  created_at bigint NOT NULL
) ENGINE = InnoDB;

-- One row that is written only to make durable what was read: InnoDB shows a commit before it is on disk, and syncs in order.
CREATE TABLE IF NOT EXISTS firstcome_flush (
  id bigint PRIMARY KEY,
  flushed bigint NOT NULL
) ENGINE = InnoDB;

INSERT INTO firstcome_flush (id, flushed) VALUES (1, 0) ON DUPLICATE KEY UPDATE id = id;
