
-- ARGV: name. Changes nothing. Nothing is answered for a lock that is free.
local keys = keys_of(ARGV[1])
local hold = read(keys)
local first, holders = living(hold)
if not first then
  return {}
end
return { now, call('ZCARD', keys.line), first.request, first.owner, hold.fence, first.expires, holders }
