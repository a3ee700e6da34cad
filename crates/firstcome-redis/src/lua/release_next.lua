
-- Or the next one lives.
local name = string.sub(KEYS[1], 12)
if is_ours and not string.find(held, '^%S+ %d+ %-') and now < string.sub(held, -19, -4) + lasts_us(lease, string.sub(held, -2, -2)) then
  popped = call('ZPOPMIN', bucket .. 'q:' .. name)
  local request = popped[1]
  if not request then
    call('DEL', KEYS[1])
    return clock_text
  end
  local rest, client = bucket .. 'w:' .. name, string.sub(request, 1, 16)
  local wishes, life = call('HGET', rest, request), call('HGET', LIVES, client)
  local next_lease, passes = string.match(wishes or '', '^(%d+) (%d+)')
  if passes == '1' and life and math.abs(now - string.sub(life, -16)) <= WINDOW_US and draw_clock() then
    call('HDEL', rest, request)
    call('SET', KEYS[1], request .. ' ' .. wishes .. ' ' .. clock_text .. ' ' .. clock_text .. ' 0+', 'PX',
      next_lease + HOLD_MS)
    call('PUBLISH', INBOX .. client,
      name .. ' ' .. request .. ' ' .. clock_text .. ' ' .. clock_text .. ' ' .. next_lease)
    return clock_text
  end
  -- What follows begins with the one that was taken out of the line.
end
