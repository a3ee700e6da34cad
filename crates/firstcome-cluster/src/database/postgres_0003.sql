-- How the pages of rooms look, as firstcome_core::room::appearance writes it. A room without a row has the look of every other.
-- The version is another one after each change, so that a node reads only what it does not know.
CREATE TABLE firstcome_appearance (
  room bigint PRIMARY KEY,
  version bigint NOT NULL,
  appearance bytea NOT NULL
);
