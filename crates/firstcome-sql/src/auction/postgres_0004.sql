-- Members whose name was erased, while not all of their records are chained again: those after `done` up to `last` are chained under
-- the name before. Chain is what record `done` had then, renewed what it has now. A program from before would take them for damage.
CREATE TABLE firstcome_renaming (
  member bigint PRIMARY KEY,
  done bigint NOT NULL CHECK (0 <= done),
  last bigint NOT NULL CHECK (0 < last),
  name text COLLATE "C" NOT NULL,
  chain bytea NOT NULL CHECK (octet_length(chain) = 32),
  renewed bytea NOT NULL CHECK (octet_length(renewed) = 32)
);
