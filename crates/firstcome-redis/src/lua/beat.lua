
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
  else
    looked[at - 1] = { seen(keys, hold, client) }
    -- Grants that the process may have missed: those that it has not confirmed, else its first one.
    local open, mine = {}, {}
    for _, sharer in ipairs(sharers_of(hold)) do
      if string.sub(sharer.request, 1, 16) == client then
        mine[1] = mine[1] or sharer
        open[#open + 1] = sharer.taken == 0 and sharer or nil
      end
    end
    for _, grant in ipairs(#open == 0 and mine or open) do
      for _, said in ipairs({ grant.request, hold.fence, grant.taken, grant.expires }) do
        table.insert(looked[at - 1], said)
      end
    end
  end
end
return finish({ now, life_of(client).number, looked })
