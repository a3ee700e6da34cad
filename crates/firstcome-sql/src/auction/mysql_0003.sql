-- What takes the place of records that a purge removed: the first ones of a member, up to this number. Balance and instant are those
-- of the last removed record; charged is the charges less the refunds of all removed ones. A program from before would take the
-- gap for damage.
CREATE TABLE IF NOT EXISTS firstcome_anchor (
  member bigint PRIMARY KEY,
  number bigint NOT NULL CHECK (0 < number),
  total bigint NOT NULL,
  held bigint NOT NULL,
  at bigint NOT NULL,
  charged bigint NOT NULL,
  chain BINARY(32) NOT NULL,
  CHECK (0 <= held AND held <= total AND total <= 9007199254740991)
) ENGINE = InnoDB;
