-- Brings in users, or keys of requests, whose claims SQL holds.
-- KEYS lease, users or keys
-- ARGV node, lease_ms, then name and value of each
if redis.call('HGET', KEYS[1], 'node') ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[2])))
if #ARGV > 2 then redis.call('HSET', KEYS[2], unpack(ARGV, 3)) end
return 1
