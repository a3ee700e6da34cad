-- KEYS: counter, lives, hold, line. Changes nothing.
local hold = read(KEYS[3])
local waiters = redis.call('ZCARD', KEYS[4])
if not hold or hold.expires <= now then
  return { now, waiters }
end
return { now, waiters, hold.owner, hold.fence, hold.expires }
