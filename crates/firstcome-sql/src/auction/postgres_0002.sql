-- One row. An operator raises the generation to accept that acknowledged commits are gone, and nodes that stand still for it go on.
CREATE TABLE firstcome_market_state (
  id bigint PRIMARY KEY CHECK (id = 1),
  generation bigint NOT NULL
);

INSERT INTO firstcome_market_state (id, generation) VALUES (1, 1);
