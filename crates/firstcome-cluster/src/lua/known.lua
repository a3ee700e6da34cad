-- Shows what a sequencer has under some names, if it is of this generation. Changes nothing.
-- KEYS sequencer, users or keys
-- ARGV generation, names
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return {} end
return redis.call('HMGET', KEYS[2], unpack(ARGV, 2))
