local last = tonumber(redis.call('GET', KEYS[1]) or '0')
local popped
