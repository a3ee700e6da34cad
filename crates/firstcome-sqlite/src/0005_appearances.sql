-- How the pages of rooms look, as firstcome_core::room::appearance writes it. A room without a row has the look of every other.
CREATE TABLE appearance (
    room       INTEGER PRIMARY KEY,
    appearance BLOB NOT NULL
) STRICT;
