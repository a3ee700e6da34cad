
-- ARGV: name. Changes nothing.
local keys = keys_of(ARGV[1])
local hold, waiters = read(keys), call('ZCARD', keys.line)
local first, holders = living(hold)
if not first then
  return { now, waiters }
end
return { now, waiters, first.owner, hold.fence, first.expires, holders }
