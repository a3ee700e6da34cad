
local wait, keys = tonumber(ARGV[3]), keys_of(name)
local lease, passes, owner = string.match(ARGV[1], '^%S+ (%d+) (%d+) (%S+)$')
lease, passes = tonumber(lease), tonumber(passes)
if some_void and now < tonumber(call('ZSCORE', VOIDS, request) or '0') then
  return { now, 'V' }
end
local hold = advance(keys, name)
if not hold then
  hold = give(request, lease, passes, owner, 1)
  write(keys.hold, hold)
end
if hold.request == request then
  -- Also what stands already is written: whoever waits for replicas waits for what he wrote himself.
  call('PEXPIRE', keys.hold, hold.lease + HOLD_MS)
  return finish({ now, 'G', hold.fence, hold.expires, hold.taken })
end
local number = call('ZSCORE', keys.line, request)
if number then
  number = tonumber(number)
elseif wait == 0 then
  return finish({ now, 'C', hold.owner, call('ZCARD', keys.line), hold.expires })
else
  number = wait
  if wait == 1 or math.max(last, now) < wait or 0 < call('ZCOUNT', keys.line, text(wait), text(wait)) then
    number = draw()
  end
  last = math.max(last, number)
  call('ZADD', keys.line, text(number), request)
  call('HSET', keys.rest, request, string.sub(ARGV[1], #request + 2))
  call('PEXPIRE', keys.line, LINE_MS)
  call('PEXPIRE', keys.rest, LINE_MS)
  write(keys.hold, hold)
end
local life = touch(client)
local ahead = call('ZRANK', keys.line, request)
return finish({ now, 'Q', number, ahead, life, hold.expires, hold.lease, is_head(keys, client) })
