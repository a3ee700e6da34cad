-- KEYS: hold. ARGV: request, and anything if there may be another copy of it.

-- The way of a hold that is given up in time by a request that was sent once, and nobody waits: what follows says the
-- same, with more reads.
local held, lease = call('GET', KEYS[1]), nil
local is_ours = held and not ARGV[2] and string.find(held, ARGV[1] .. ' ', 1, true) == 1
if is_ours then
  lease = string.match(held, ' (%d+)')
  if string.sub(held, -2) == '1-' and tonumber(clock_text) < string.sub(held, -19, -4) + lease * 1000 then
    call('DEL', KEYS[1])
    return clock_text
  end
end
