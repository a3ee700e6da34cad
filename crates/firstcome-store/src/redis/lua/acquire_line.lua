
-- The way to the end of a busy line, by a process that was heard of just now: what follows says the same.
if there == 1 and ARGV[3] == '1' then
  local held = call('GET', KEYS[2])
  local holder, lease = string.match(held, '^(%S+) (%d+)')
  local expires = string.sub(held, -18, -3) + lasts_us(lease, string.sub(held, -1))
  if holder ~= request and now < expires and expires <= now + lease * 1000 then
    local line = bucket .. 'q:' .. ARGV[5]
    local head_client = string.sub(call('ZRANGE', line, 0, 0)[1] or client, 1, 16)
    local lives = call('HMGET', LIVES, client, head_client)
    local heard = lives[1] and string.sub(lives[1], -16)
    if heard and math.abs(now - heard) < FRESH_US and call('ZADD', line, 'NX', clock_text, request) == 1 then
      local number = draw_written('1')
      if number ~= clock_text then
        call('ZADD', line, number, request)
      end
      local rest = bucket .. 'w:' .. ARGV[5]
      call('HSET', rest, request, string.sub(ARGV[1], #request + 2))
      local ahead, head = call('ZCARD', line) - 1, 1
      if ahead == 0 then
        call('PEXPIRE', line, LINE_MS)
        call('PEXPIRE', rest, LINE_MS)
        call('PEXPIRE', KEYS[2], lease + HOLD_MS)
      elseif head_client ~= client and lives[2] and math.abs(now - string.sub(lives[2], -16)) <= WINDOW_US then
        head = 0
      end
      local life = tonumber(string.match(lives[1], '^%d+'))
      return { now, 'Q', tonumber(number), ahead, life, expires, tonumber(lease), head }
    end
  end
end
