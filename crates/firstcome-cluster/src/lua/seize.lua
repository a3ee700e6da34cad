-- Takes the lease under which one node makes the sequencer anew.
-- KEYS lease
-- ARGV node, lease_ms
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local has = redis.call('HMGET', KEYS[1], 'node', 'until')
local ends, lease = tonumber(has[2] or 0), tonumber(ARGV[2])
-- A lease that ends later than any can is one from before somebody set the clock back.
if has[1] and has[1] ~= ARGV[1] and ms < ends and ends <= ms + lease then return 0 end
redis.call('HSET', KEYS[1], 'node', ARGV[1], 'until', string.format('%.0f', ms + lease))
return 1
