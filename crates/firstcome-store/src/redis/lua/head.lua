local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local WINDOW_US = 2000000
local INBOX = 'fc:inbox:'
local FRESH_US = 500000
