
-- ARGV: name. Changes nothing.
local keys = keys_of(ARGV[1])
local hold, waiters = read(keys.hold), call('ZCARD', keys.line)
if not hold or hold.expires <= now then
  return { now, waiters }
end
return { now, waiters, hold.owner, hold.fence, hold.expires }
