
local bucket = string.sub(KEYS[1], 1, -2)
-- The lives of processes; what was given up before it arrived.
local LIVES, VOIDS, VOID_MS = bucket .. 'c', bucket .. 'x', 60000
-- Who was taken out of a line already.
local popped
