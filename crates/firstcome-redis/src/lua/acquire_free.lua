-- KEYS: counter, hold. ARGV: waiter (request, lease_ms, passes, owner), hold_ms, wait, passes if they are several.
-- `wait` is 0 for not at all, 1 for yes, else the place that it was.

-- The way of a lock that nobody has: what follows says the same, with more reads. A line without a hold there is none.
local held = ARGV[1] .. ' ' .. clock_text .. ' ' .. clock_text .. ' 1-'
if call('SET', KEYS[2], held, 'NX', 'PX', ARGV[2]) then
  local before = call('SET', KEYS[1], clock_text, 'GET')
  if not ARGV[4] and (not before or before < clock_text) then
    if not before or #before == 16 then
      return clock_text
    end
    -- Something of the bucket is void: not this, as a rule.
    local voids = string.sub(KEYS[1], 1, 9) .. 'x'
    if not call('ZSCORE', voids, string.match(ARGV[1], '^%S+')) then
      if call('EXISTS', voids) == 1 then
        call('SET', KEYS[1], clock_text .. ' v')
      end
      return clock_text
    end
  end
  -- Several passes, a clock that was set back, or given up before: as if nothing had been done.
  call('DEL', KEYS[2])
  call(unpack(before and { 'SET', KEYS[1], before } or { 'DEL', KEYS[1] }))
end
