
local request, keys = ARGV[1], keys_of(name)
local hold = advance(keys, name)
local said, ahead = 'N', 0
if hold and hold.request == request then
  -- If this very request was granted just now, nobody needs to hear of it.
  pushes = {}
  grant_next(keys, name)
  said = 'R'
else
  local rank = call('ZRANK', keys.line, request)
  if rank then
    call('ZREM', keys.line, request)
    call('HDEL', keys.rest, request)
    said, ahead = 'W', rank
  end
end
if said == 'N' or ARGV[2] then
  some_void = true
  call('ZREMRANGEBYSCORE', VOIDS, '-inf', text(now))
  call('ZADD', VOIDS, text(now + VOID_MS * 1000), request)
  call('PEXPIRE', VOIDS, VOID_MS)
end
return finish({ now, said, ahead })
