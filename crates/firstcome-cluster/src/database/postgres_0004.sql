-- The order of those who join before the opening: 0 first come, 1 a draw. After the draw: its seed, and who took part.
ALTER TABLE firstcome_room ADD COLUMN draws bigint NOT NULL DEFAULT 0 CHECK (draws IN (0, 1));
ALTER TABLE firstcome_room ADD COLUMN draw_seed bytea;
ALTER TABLE firstcome_room ADD COLUMN draw_first bigint;
ALTER TABLE firstcome_room ADD COLUMN draw_entrants bigint;
ALTER TABLE firstcome_room ADD COLUMN drawn_at bigint;
