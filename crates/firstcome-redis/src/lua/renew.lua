
-- ARGV: request, lease_ms, name of each.
-- A server that is full refuses to begin with what could take more room; this does not, and what follows takes no more
-- than was there: so holds last, and processes live.
call('PEXPIRE', LIVES, LINE_MS)
local ends = {}
for at = 0, #ARGV / 3 - 1 do
  local request, lease, name = ARGV[1 + 3 * at], tonumber(ARGV[2 + 3 * at]), ARGV[3 + 3 * at]
  local keys = keys_of(name)
  local hold = advance(keys, name)
  local mine = hold and held_by(hold, request)
  if mine then
    -- Never shorter: a copy of an earlier renewal may arrive after a later one.
    if mine.expires <= now + lease * 1000 then
      mine.expires, mine.lease = now + lease * 1000, lease
    end
    mine.taken = 1
    write(keys, hold)
    ends[at + 1] = mine.expires
  else
    ends[at + 1] = 0
  end
end
return finish({ now, ends })
