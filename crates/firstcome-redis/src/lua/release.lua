
local request, keys = ARGV[1], keys_of(name)
local hold = advance(keys, name)
local said, ahead = 'N', 0
if hold and held_by(hold, request) then
  -- If this very request was granted just now, its process need not hear of it.
  for at = #pushes, 1, -1 do
    if string.find(pushes[at][2], ' ' .. request .. ' ', 1, true) then
      table.remove(pushes, at)
    end
  end
  local standing = sharers_of(hold)
  for at = #standing, 1, -1 do
    if standing[at].request == request then
      table.remove(standing, at)
    end
  end
  if hold.passes < 0 then
    stand(keys, name, hold.fence, standing)
  else
    grant_next(keys, name)
  end
  said = 'R'
else
  local rank = call('ZRANK', keys.line, request)
  if rank then
    call('ZREM', keys.line, request)
    call('HDEL', keys.rest, request)
    said, ahead = 'W', rank
    -- Others may have waited only because this one was before them.
    if hold and hold.passes < 0 then
      advance(keys, name)
    end
  end
end
if said == 'N' or ARGV[2] then
  some_void = true
  call('ZREMRANGEBYSCORE', VOIDS, '-inf', text(now))
  call('ZADD', VOIDS, text(now + VOID_MS * 1000), request)
  call('PEXPIRE', VOIDS, VOID_MS)
end
return finish({ now, said, ahead })
