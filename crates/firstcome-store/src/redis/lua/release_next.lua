-- KEYS: counter, hold, line. ARGV: request, copies (1 if there is only one), name.

-- The way of a hold that is given up in time by a request that was sent once, to nobody or to a next one who lives: what
-- follows says the same, with more reads.
local held = call('GETDEL', KEYS[2])
if held then
  local is_ours = string.find(held, ARGV[1] .. ' ', 1, true) == 1
  local lease = string.match(held, ' (%d+)')
  if is_ours and ARGV[2] == '1' and now < string.sub(held, -18, -3) + lasts_us(lease, string.sub(held, -1)) then
    popped = call('ZPOPMIN', KEYS[3])
    local request = popped[1]
    if not request then
      return now
    end
    local rest = bucket .. 'w:' .. ARGV[3]
    local client, wishes = string.sub(request, 1, 16), call('HGET', rest, request)
    local life = call('HGET', LIVES, client)
    if wishes and life and math.abs(now - string.sub(life, -16)) <= WINDOW_US then
      call('HDEL', rest, request)
      local next_lease, passes = string.match(wishes, '^(%d+) (%d+)')
      local fence = draw_written(passes)
      call('SET', KEYS[2], request .. ' ' .. wishes .. ' ' .. fence .. ' ' .. clock_text .. ' 0', 'PX',
        next_lease + HOLD_MS)
      call('PUBLISH', INBOX .. client,
        ARGV[3] .. ' ' .. request .. ' ' .. fence .. ' ' .. clock_text .. ' ' .. next_lease)
      return now
    end
    -- The next one is dead: what follows begins with it.
  end
  call('SET', KEYS[2], held, 'PX', lease + HOLD_MS)
end
