-- What rooms remember across a restart beside their rows. Advice: without it all visitors count as present, and the rate is whole.
CREATE TABLE memory (
    id    INTEGER PRIMARY KEY, -- room id << 32 | number of the first ticket that it is about; 0 for the rate
    bytes BLOB    NOT NULL     -- a byte for each ticket: for how many seconds its visitor still counts as present
) STRICT;
