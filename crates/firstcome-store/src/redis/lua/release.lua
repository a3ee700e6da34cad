-- KEYS: counter, lives, hold, line, rest, void. ARGV: request, copies (1 if there is only one), name.
local keys = { hold = KEYS[3], line = KEYS[4], rest = KEYS[5] }
local request, name = ARGV[1], ARGV[3]
local hold = advance(keys, name)
local said, ahead = 'N', 0
if hold and hold.request == request then
  grant_next(keys, name)
  said = 'R'
else
  local rank = redis.call('ZRANK', keys.line, request)
  if rank then
    redis.call('ZREM', keys.line, request)
    redis.call('HDEL', keys.rest, request)
    said, ahead = 'W', rank
  end
end
if said == 'N' or ARGV[2] ~= '1' then
  redis.call('SET', KEYS[6], '', 'PX', 60000)
end
return finish({ now, said, ahead })
