-- Whether a token is accepted; if so it is remembered. `key` is a hash of locks, in the slot of what is written.
local function fence_ok(key, lock, fence, owner)
  -- Fences are below 2^53, so numbers hold them exactly.
  local shown = tonumber(fence)
  if not string.find(fence, '^[1-9]%d*$') or shown >= 9007199254740992 then
    error('not a fence')
  end
  local last = redis.call('HGET', key, lock)
  if last then
    local digits, holder = string.match(last, '^(%d+) (.+)$')
    if not digits then
      error('not the last token of a lock')
    end
    local number = tonumber(digits)
    if shown < number or (shown == number and owner ~= holder) then
      return false
    end
  end
  redis.call('HSET', key, lock, fence .. ' ' .. owner)
  return true
end
