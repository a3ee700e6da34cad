-- Appends entries to the log of a room, and gives all that the caller has not seen.
-- KEYS log, entries, nodes
-- ARGV generation, position seen, node, wall or '', steady or '', steady as the caller expects it or '', lease_ms,
--      items_max, tick as bytes, when to tick ('' no, 'now', or so long after the last one), position that is durable or '',
--      count, entries, whether somebody waits until they are durable, word that nobody was heard as bytes, branch, whether
--      the caller can write to SQL
local log = redis.call('HMGET', KEYS[1], 'generation', 'position', 'wall', 'steady', 'offset', 'ticked', 'node', 'until',
  'durable', 'run', 'branch')
if log[1] ~= ARGV[1] then return {'lost'} end
-- Another server, or this one after a new start, may have forgotten the end; whoever has seen that end follows another branch.
if log[10] ~= string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or log[11] ~= ARGV[16] then return {'lost'} end
local position, seen = tonumber(log[2]), tonumber(ARGV[2])
if position < seen then
  -- The caller has seen more than there is: this is an old state.
  redis.call('HDEL', KEYS[1], 'generation')
  return {'lost'}
end
local wall, steady, offset, clock = time_of(tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(log[5]),
  tonumber(log[3]), tonumber(log[4]))
local ms = math.floor(clock / 1000)
local count, entries, ticked = tonumber(ARGV[12]), ARGV[13], tonumber(log[6])
-- Nobody has asked for so long: no node was there, or this server was not.
if 5000000 < steady - tonumber(log[4]) and (ARGV[4] == '' or redis.call('HEXISTS', KEYS[3], ARGV[3]) == 0) then
  count, entries = count + 1, ARGV[15] .. entries
end
local after = tonumber(ARGV[10])
if ARGV[10] == 'now' or (after and (after <= steady - ticked or steady < ticked)) then
  count, entries, ticked = count + 1, entries .. ARGV[9], steady
end
local text_wall, text_steady = string.format('%.0f', wall), string.format('%.0f', steady)
if 0 < count then
  redis.call('XADD', KEYS[2], position + count .. '-1', 'first', position + 1, 'wall', text_wall, 'steady', text_steady,
    'entries', entries)
  position = position + count
end
local drains, lease, ends = 0, tonumber(ARGV[7]), tonumber(log[8])
-- A lease that ends later than any can is one from before somebody set the clock back. Whoever cannot write gives it up.
if ARGV[17] == '0' then
  if log[7] == ARGV[3] then redis.call('HSET', KEYS[1], 'node', '', 'until', 0) end
elseif log[7] == ARGV[3] or ends <= ms or ms + lease < ends then
  drains = 1
  redis.call('HSET', KEYS[1], 'node', ARGV[3], 'until', string.format('%.0f', ms + lease))
end
if drains == 0 and ARGV[14] == '1' and log[7] ~= '' then redis.call('PUBLISH', 'fc:node:' .. log[7], 'room ' .. KEYS[1]) end
local durable = log[9]
if ARGV[11] ~= '' and tonumber(durable) < tonumber(ARGV[11]) then durable = ARGV[11] end
redis.call('HSET', KEYS[1], 'position', position, 'wall', text_wall, 'steady', text_steady, 'offset',
  string.format('%.0f', offset), 'ticked', string.format('%.0f', ticked), 'durable', durable)
redis.call('HSET', KEYS[3], ARGV[3], ms)
if ARGV[11] ~= '' then
  -- Whoever waits for it hears of it; who is not heard of is forgotten.
  local nodes = redis.call('HGETALL', KEYS[3])
  for at = 1, #nodes, 2 do
    if tonumber(nodes[at + 1]) + 60000 < ms then redis.call('HDEL', KEYS[3], nodes[at])
    elseif nodes[at] ~= ARGV[3] then redis.call('PUBLISH', 'fc:node:' .. nodes[at], 'room ' .. KEYS[1]) end
  end
end
-- Entries before an image are gone: by the position whoever has not seen them finds out.
return {'ok', drains, text_wall, text_steady, position,
  redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-1', '+', 'COUNT', ARGV[8])}
