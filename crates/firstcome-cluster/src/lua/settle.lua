-- Says how far SQL is, passes answers on, and gives what is to be written next.
-- KEYS sequencer, users, keys, outbox
-- ARGV generation, node, position, issued, lease_ms, entries_max, number of tickets to forget, whether the caller can write
--      to SQL, ticket, user, key or '', body of each; then channel and message of each notice
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'position', 'node', 'until')
if sequencer[1] ~= ARGV[1] then return {'lost'} end
local ticket, position = tonumber(sequencer[2]), tonumber(ARGV[3])
if ticket < position then
  redis.call('HDEL', KEYS[1], 'generation')
  return {'lost'}
end
local forget = tonumber(ARGV[7])
for at = 1, forget do
  local ticket, user, key, body = ARGV[5 + 4 * at], ARGV[6 + 4 * at], ARGV[7 + 4 * at], ARGV[8 + 4 * at]
  if redis.call('HGET', KEYS[2], user) == ticket then redis.call('HDEL', KEYS[2], user) end
  if key ~= '' and redis.call('HGET', KEYS[3], key) == body .. ':' .. ticket then redis.call('HDEL', KEYS[3], key) end
end
for at = 9 + 4 * forget, #ARGV, 2 do redis.call('PUBLISH', ARGV[at], ARGV[at + 1]) end
if position < tonumber(sequencer[3]) then return {'behind'} end
if tonumber(sequencer[3]) < position then
  redis.call('HSET', KEYS[1], 'position', ARGV[3], 'void', string.format('%.0f', position - tonumber(ARGV[4])))
  -- The entry with the position stays: whoever reads on compares it with what SQL has of it.
  redis.call('XTRIM', KEYS[4], 'MINID', ARGV[3] .. '-1')
end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ends, lease = tonumber(sequencer[5]), tonumber(ARGV[5])
-- A lease that ends later than any can is one from before somebody set the clock back.
if sequencer[4] ~= ARGV[2] and ms < ends and ends <= ms + lease then return {'other'} end
if ticket == position then
  redis.call('HSET', KEYS[1], 'node', '', 'until', 0)
  return {'done'}
end
if ARGV[8] == '0' then
  -- Somebody else may reach SQL, and asks when a claim waits there.
  redis.call('HSET', KEYS[1], 'node', '', 'until', 0)
  return {'left'}
end
redis.call('HSET', KEYS[1], 'node', ARGV[2], 'until', string.format('%.0f', ms + lease))
return {'ok', sequencer[2], redis.call('XRANGE', KEYS[4], ARGV[3] .. '-1', '+', 'COUNT', ARGV[6])}
