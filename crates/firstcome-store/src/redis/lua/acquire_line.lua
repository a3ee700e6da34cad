-- The way to the end of a busy line, by a process that was heard of just now: what follows says the same.
if found[2] and not is_void and ARGV[5] == '1' then
  local holder, lease, expires = string.match(found[2], '^(%S+) (%d+) %d+ %d+ (%d+)')
  expires = tonumber(expires)
  if holder ~= ARGV[1] and now < expires and expires <= now + lease * 1000 then
    local client = string.sub(ARGV[1], 1, 16)
    local life, seen_us = string.match(redis.call('HGET', KEYS[2], client) or '', '^(%d+) (%d+)$')
    if life and math.abs(now - seen_us) < FRESH_US and not redis.call('ZSCORE', KEYS[4], ARGV[1]) then
      local ahead, head = redis.call('ZCARD', KEYS[4]), 1
      if 0 < ahead then
        local of = string.sub(redis.call('ZRANGE', KEYS[4], 0, 0)[1], 1, 16)
        if of ~= client then
          local other_us = string.match(redis.call('HGET', KEYS[2], of) or '', ' (%d+)$')
          if other_us and math.abs(now - other_us) <= WINDOW_US then
            head = 0
          end
        end
      end
      local number = math.max(now, last + 1)
      local written = string.format('%.0f', number)
      redis.call('ZADD', KEYS[4], written, ARGV[1])
      redis.call('HSET', KEYS[5], ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
      redis.call('SET', KEYS[1], written)
      if ahead == 0 then
        redis.call('PEXPIRE', KEYS[4], 7200000)
        redis.call('PEXPIRE', KEYS[5], 7200000)
        redis.call('PEXPIRE', KEYS[3], lease + 7260000)
      end
      return { now, 'Q', number, ahead, tonumber(life), expires, tonumber(lease), head }
    end
  end
end
