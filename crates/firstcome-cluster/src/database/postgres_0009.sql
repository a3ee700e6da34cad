-- The time in which a visitor of a room must poll for the first time; NULL for no such time, as rooms before this step have.
ALTER TABLE firstcome_room ADD COLUMN first_poll_ms bigint;
