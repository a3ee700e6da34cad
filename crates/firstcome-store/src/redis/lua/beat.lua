-- KEYS: counter, lives, then hold, line, rest of each lock. ARGV: client, then the name of each.
local client = ARGV[1]
touch(client)
local looked = {}
for at = 0, #ARGV - 2 do
  local keys = { hold = KEYS[3 + 3 * at], line = KEYS[4 + 3 * at], rest = KEYS[5 + 3 * at] }
  local hold = advance(keys, ARGV[2 + at])
  -- A line that never empties must not end by itself.
  redis.call('PEXPIRE', keys.line, LINE_MS)
  redis.call('PEXPIRE', keys.rest, LINE_MS)
  if not hold then
    looked[at + 1] = {}
  elseif string.sub(hold.request, 1, 16) == client then
    looked[at + 1] =
      { hold.expires, hold.lease, is_head(keys, client), hold.request, hold.fence, hold.taken }
  else
    looked[at + 1] = { hold.expires, hold.lease, is_head(keys, client) }
  end
end
return finish({ now, life_of(client).number, looked })
