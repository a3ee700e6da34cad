-- Members whose name was erased, while not all of their records are chained again: those after `done` up to `last` are chained under
-- the name before. Chain is what record `done` had then, renewed what it has now. A program from before would take them for damage.
CREATE TABLE IF NOT EXISTS firstcome_renaming (
  member bigint PRIMARY KEY,
  done bigint NOT NULL CHECK (0 <= done),
  last bigint NOT NULL CHECK (0 < last),
  name VARBINARY(128) NOT NULL,
  chain BINARY(32) NOT NULL,
  renewed BINARY(32) NOT NULL
) ENGINE = InnoDB;
