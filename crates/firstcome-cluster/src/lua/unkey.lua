-- Forgets keys of requests that are new ones from now on, if the sequencer is of this generation.
-- KEYS sequencer, keys
-- ARGV generation, keys
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
return redis.call('HDEL', KEYS[2], unpack(ARGV, 2))
