
-- ARGV: name. Changes nothing. Nothing is answered for a lock that is free.
local keys = keys_of(ARGV[1])
local hold = read(keys.hold)
if not hold or hold.expires <= now then
  return {}
end
return { now, call('ZCARD', keys.line), hold.request, hold.owner, hold.fence, hold.expires }
