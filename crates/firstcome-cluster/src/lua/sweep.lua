-- Counts those keys that are there, or throws them away, if the sequencer or the log is open and of this generation.
-- KEYS sequencer or log, then keys of generations that are over
-- ARGV generation, what: EXISTS or UNLINK
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
return redis.call(ARGV[2], unpack(KEYS, 2))
