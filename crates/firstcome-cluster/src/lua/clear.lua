-- Throws a sequencer away, with all that belongs to generations that are over, and what is in the way of the next one.
-- KEYS lease, sequencer, then the rest of it
-- ARGV node
if redis.call('HGET', KEYS[1], 'node') ~= ARGV[1] then return 0 end
redis.call('UNLINK', unpack(KEYS, 2))
return 1
