
-- ARGV: client, then the name of each.
-- A server that is full refuses to begin with what could take more room; this does not, and what follows takes no more
-- than was there: so holds last, and processes live.
call('PEXPIRE', LIVES, LINE_MS)
local client = ARGV[1]
touch(client)
local looked = {}
for at = 2, #ARGV do
  local keys = keys_of(ARGV[at])
  local hold = advance(keys, ARGV[at])
  -- A line that never empties must not end by itself.
  call('PEXPIRE', keys.line, LINE_MS)
  call('PEXPIRE', keys.rest, LINE_MS)
  if not hold then
    looked[at - 1] = {}
  elseif string.sub(hold.request, 1, 16) == client then
    looked[at - 1] = { hold.expires, hold.lease, is_head(keys, client), hold.request, hold.fence, hold.taken }
  else
    looked[at - 1] = { hold.expires, hold.lease, is_head(keys, client) }
  end
end
return finish({ now, life_of(client).number, looked })
