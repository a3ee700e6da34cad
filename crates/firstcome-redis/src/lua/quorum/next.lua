-- Tells the first of those who wait that it is his turn, and keeps it for him for a moment. Whom nobody hears is passed over.
-- KEYS: lock, turn, waiters.
local call = redis.call

local function next_turn(turn_ms, token)
  for _ = 1, 64 do
    local first = call('ZPOPMIN', KEYS[3])[1]
    if not first then
      return
    end
    local channel, number = string.match(first, '^(%S+) (%S+)$')
    if channel and 0 < call('PUBLISH', channel, number .. ' ' .. token) then
      call('SET', KEYS[2], first, 'PX', turn_ms)
      return
    end
  end
end
