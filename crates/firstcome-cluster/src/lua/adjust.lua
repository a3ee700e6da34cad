-- Puts settings in force that SQL holds. Older ones than those in force have no effect.
-- KEYS sequencer
-- ARGV generation, version, limit, opens, expires, deleted
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'version')
if sequencer[1] ~= ARGV[1] then return 0 end
if tonumber(sequencer[2]) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'version', ARGV[2], 'limit', ARGV[3], 'opens', ARGV[4], 'expires', ARGV[5],
    'deleted', ARGV[6])
end
return 1
