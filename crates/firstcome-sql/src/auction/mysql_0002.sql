-- One row. An operator raises the generation to accept that acknowledged commits are gone, and nodes that stand still for it go on.
CREATE TABLE IF NOT EXISTS firstcome_market_state (
  id bigint PRIMARY KEY,
  generation bigint NOT NULL
) ENGINE = InnoDB;

INSERT INTO firstcome_market_state (id, generation) VALUES (1, 1) ON DUPLICATE KEY UPDATE id = id;
