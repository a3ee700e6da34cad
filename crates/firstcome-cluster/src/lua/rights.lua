-- Does once whatever the other scripts do, on keys that nobody else has, and leaves nothing.
-- KEYS a hash, a stream
-- ARGV a channel
local failed
local function try(...)
  local told = redis.pcall(...)
  if type(told) == 'table' and told.err then failed = failed or told end
end
try('TIME')
try('INFO', 'server')
try('HSET', KEYS[1], 'a', 1)
try('HGET', KEYS[1], 'a')
try('HMGET', KEYS[1], 'a')
try('HGETALL', KEYS[1])
try('HEXISTS', KEYS[1], 'a')
try('HDEL', KEYS[1], 'a')
try('XADD', KEYS[2], '1-1', 'a', 1)
try('XRANGE', KEYS[2], '1-1', '+', 'COUNT', 1)
try('XTRIM', KEYS[2], 'MINID', '1-1')
try('PUBLISH', ARGV[1], '')
try('UNLINK', KEYS[1], KEYS[2])
try('DEL', KEYS[1], KEYS[2])
return failed or 1
