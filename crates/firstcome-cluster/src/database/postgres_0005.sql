-- The last renewal of each ticket that was renewed, until its place is gone. Tickets of earlier generations are void.
CREATE TABLE firstcome_renewal (
  room bigint NOT NULL,
  number bigint NOT NULL CHECK (0 < number),
  generation bigint NOT NULL CHECK (0 < generation),
  request bytea NOT NULL,
  PRIMARY KEY (room, number)
);
