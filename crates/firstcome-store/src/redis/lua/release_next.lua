-- The way of a hold that is given up in time by a request that was sent once, to nobody or to a next one who lives: what
-- follows says the same, with more reads.
local found = redis.call('MGET', KEYS[1], KEYS[3])
local last, held, popped = tonumber(found[1] or '0'), found[2], nil
if held and ARGV[2] == '1' and string.find(held, ARGV[1] .. ' ', 1, true) == 1 then
  local holds, expires = string.match(held, '^%S+ (%d+) %d+ %d+ (%d+)')
  expires = tonumber(expires)
  if now < expires and expires <= now + holds * 1000 then
    local first = redis.call('ZPOPMIN', KEYS[4])
    local request = first[1]
    if not request then
      redis.call('DEL', KEYS[3])
      return { now, 'R', 0 }
    end
    local rest = redis.call('HGET', KEYS[5], request)
    local client = string.sub(request, 1, 16)
    local seen_us = string.match(redis.call('HGET', KEYS[2], client) or '', ' (%d+)$')
    if rest and seen_us and math.abs(now - seen_us) <= WINDOW_US then
      redis.call('HDEL', KEYS[5], request)
      local lease, passes, owner = string.match(rest, '^(%d+) (%d+) (.*)$')
      local fence = math.max(now, last + 1)
      local fence_text = string.format('%.0f', fence)
      local until_text = string.format('%.0f', now + math.min(lease * 1000, WINDOW_US))
      redis.call('SET', KEYS[3],
        request .. ' ' .. lease .. ' ' .. fence_text .. ' ' .. passes .. ' ' .. until_text .. ' 0 ' .. owner,
        'PX', lease + 7260000)
      if passes == '1' then
        redis.call('SET', KEYS[1], fence_text)
      else
        redis.call('SET', KEYS[1], string.format('%.0f', fence + math.max(passes, 1) - 1))
      end
      redis.call('PUBLISH', INBOX .. client, ARGV[3] .. ' ' .. request .. ' ' .. fence_text .. ' ' .. until_text)
      return { now, 'R', 0 }
    end
    -- The next one is dead: what follows begins with it.
    popped = first
  end
end
