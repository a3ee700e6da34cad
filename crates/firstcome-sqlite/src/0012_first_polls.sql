-- The time in which a visitor must poll for the first time; NULL for no such time, as rooms before this step have.
ALTER TABLE room ADD COLUMN first_poll_ms INTEGER;
