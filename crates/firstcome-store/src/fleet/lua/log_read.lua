-- Gives entries of the log of a room. Changes nothing.
-- KEYS log, entries
-- ARGV generation, position seen, items_max
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return {} end
return redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-1', '+', 'COUNT', ARGV[3])
