-- The order of those who join before the opening: 0 first come, 1 a draw. After the draw: its seed, and who took part.
ALTER TABLE room ADD COLUMN draws INTEGER NOT NULL DEFAULT 0 CHECK (draws IN (0, 1));
ALTER TABLE room ADD COLUMN draw_seed BLOB CHECK (length(draw_seed) = 32);
ALTER TABLE room ADD COLUMN draw_first INTEGER; -- the first number that took part
ALTER TABLE room ADD COLUMN draw_entrants INTEGER; -- how many numbers took part
ALTER TABLE room ADD COLUMN drawn_at INTEGER;
