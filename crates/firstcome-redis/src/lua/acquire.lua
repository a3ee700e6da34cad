
local wait, keys = tonumber(ARGV[3]), keys_of(name)
local lease, passes, owner = string.match(ARGV[1], '^%S+ (%d+) (%-?%d+) (%S+)$')
lease, passes = tonumber(lease), tonumber(passes)
if some_void and now < tonumber(call('ZSCORE', VOIDS, request) or '0') then
  return { now, 'V' }
end
local hold = advance(keys, name)
if not hold then
  hold = give(request, lease, passes, owner, 1)
  write(keys, hold)
end
local mine = held_by(hold, request)
if mine then
  -- Also what stands already is written: a process that waits for replicas waits for its own write.
  call('PEXPIRE', keys.hold, stays_ms(hold))
  return finish({ now, 'G', hold.fence, mine.expires, mine.taken })
end
local place = call('ZSCORE', keys.line, request)
if place then
  place = tonumber(place)
elseif hold.passes < 0 and passes < 0 and has_room(hold, passes) and not first_shared(keys)
  and not exclusive_waits(keys) then
  local expires = now + lasts_us(lease, 1)
  hold.others[#hold.others + 1] =
    { request = request, lease = lease, passes = passes, owner = owner, expires = expires, taken = 1 }
  write(keys, hold)
  return finish({ now, 'G', hold.fence, expires, 1 })
elseif wait == 0 then
  return finish({ now, 'C', hold.owner, call('ZCARD', keys.line), free_at(hold, passes) })
else
  local number, less = wait, passes < 0 and LOWERED or 0
  local as = text(wait - less)
  if wait == 1 or math.max(last, now) < wait or 0 < call('ZCOUNT', keys.line, as, as) then
    number = draw()
  end
  last, place = math.max(last, number), number - less
  call('ZADD', keys.line, text(place), request)
  call('HSET', keys.rest, request, string.sub(ARGV[1], #request + 2))
  call('PEXPIRE', keys.line, LINE_MS)
  call('PEXPIRE', keys.rest, LINE_MS)
  write(keys, hold)
end
local life = touch(client)
local ahead = call('ZRANK', keys.line, request)
local number = place < 0 and place + LOWERED or place
return finish({ now, 'Q', number, ahead, life, seen(keys, hold, client) })
