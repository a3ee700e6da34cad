-- KEYS: counter, lives, hold, line, rest, void. ARGV: request, lease_ms, passes, owner, wait, name.
-- `wait` is 0 for not at all, 1 for yes, else the place that it was.
local keys = { hold = KEYS[3], line = KEYS[4], rest = KEYS[5] }
local request, lease, passes, owner, wait, name =
  ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6]
local client = string.sub(request, 1, 16)
if is_void then
  return { now, 'V' }
end
local hold = advance(keys, name)
if not hold then
  hold = give(request, lease, passes, owner, 1)
  write(keys.hold, hold)
end
if hold.request == request then
  return finish({ now, 'G', hold.fence, hold.expires, hold.taken })
end
local number = redis.call('ZSCORE', keys.line, request)
if number then
  number = tonumber(number)
elseif wait == 0 then
  return finish({ now, 'C', hold.owner, redis.call('ZCARD', keys.line), hold.expires })
else
  number = wait
  if wait == 1 or math.max(last, now) < wait or 0 < redis.call('ZCOUNT', keys.line, text(wait), text(wait)) then
    number = draw()
  end
  last = math.max(last, number)
  redis.call('ZADD', keys.line, text(number), request)
  redis.call('HSET', keys.rest, request, lease .. ' ' .. passes .. ' ' .. owner)
  redis.call('PEXPIRE', keys.line, LINE_MS)
  redis.call('PEXPIRE', keys.rest, LINE_MS)
  redis.call('PEXPIRE', keys.hold, hold.lease + LINE_MS + 60000)
end
local life = touch(client)
local ahead = redis.call('ZRANK', keys.line, request)
return finish({ now, 'Q', number, ahead, life, hold.expires, hold.lease, is_head(keys, client) })
