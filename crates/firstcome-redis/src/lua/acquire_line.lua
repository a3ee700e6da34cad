
local request, is_shared = string.match(ARGV[1], '^(%S+) %d+ (%-?)')
local client, name = string.sub(request, 1, 16), string.sub(KEYS[2], 12)

-- The way to the end of a busy line, by a process that was heard of just now: what follows says the same. Not for requests
-- that share the lock.
held = ARGV[3] == '1' and is_shared == '' and call('GET', KEYS[2])
local holder, lease, is_held_shared = string.match(held or '', '^(%S+) (%d+) (%-?)')
if is_held_shared == '' then
  local expires = string.sub(held, -19, -4) + lasts_us(lease, string.sub(held, -2, -2))
  local line, rest = bucket .. 'q:' .. name, bucket .. 'w:' .. name
  local head_client = string.sub(call('ZRANGE', line, 0, 0)[1] or client, 1, 16)
  local lives = call('HMGET', LIVES, client, head_client)
  if holder ~= request and now < expires and expires <= now + lease * 1000 and lives[1]
    and math.abs(now - string.sub(lives[1], -16)) < FRESH_US then
    local before = draw_clock()
    local is_void = before and string.sub(before, -1) == 'v' and call('ZSCORE', VOIDS, request)
    if before and not is_void and call('ZADD', line, 'NX', clock_text, request) == 1 then
      call('HSET', rest, request, string.sub(ARGV[1], #request + 2))
      local ahead, head = call('ZCARD', line) - 1, 1
      if ahead == 0 then
        call('SETRANGE', KEYS[2], #held - 1, '+')
        call('PEXPIRE', line, LINE_MS)
        call('PEXPIRE', rest, LINE_MS)
        call('PEXPIRE', KEYS[2], lease + HOLD_MS)
      elseif head_client ~= client and lives[2] and math.abs(now - string.sub(lives[2], -16)) <= WINDOW_US then
        head = 0
      end
      return { now, 'Q', now, ahead, tonumber(string.match(lives[1], '^%d+')), expires, tonumber(lease), head }
    end
    if before then
      call('SET', COUNTER, before)
    end
  end
end
