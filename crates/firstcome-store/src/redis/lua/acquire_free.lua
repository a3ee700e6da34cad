-- KEYS: counter, hold, voids. ARGV: waiter (request, lease_ms, passes, owner), hold_ms, wait, passes, name.
-- `wait` is 0 for not at all, 1 for yes, else the place that it was.

-- The way of a lock that nobody has: what follows says the same, with more reads. A line without a hold there is none.
local there = call('EXISTS', KEYS[2], KEYS[3], KEYS[3])
if there == 0 then
  local fence = draw_written(ARGV[4])
  call('SET', KEYS[2], ARGV[1] .. ' ' .. fence .. ' ' .. clock_text .. ' 1', 'PX', ARGV[2])
  if fence == clock_text then
    return now
  end
  return { now, 'G', tonumber(fence), now + string.match(ARGV[1], ' (%d+)') * 1000, 1 }
end
local request = string.match(ARGV[1], '^%S+')
local client = string.sub(request, 1, 16)
