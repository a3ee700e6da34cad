-- Judges claims in their order, draws tickets, and appends what was accepted to the outbox as one entry.
-- KEYS gate, users, keys, outbox
-- ARGV generation, position known to be in SQL, instant or '', node, lease_ms, backlog_max, count, whether the caller can
--      write to SQL, then for each claim: user, key or '', body, record
local gate = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'void', 'position', 'limit', 'opens', 'expires',
  'deleted', 'version', 'last', 'node', 'until', 'clock')
if gate[1] ~= ARGV[1] then return {'lost'} end
local ticket, void, position, limit = tonumber(gate[2]), tonumber(gate[3]), tonumber(gate[4]), tonumber(gate[5])
if ticket < tonumber(ARGV[2]) then
  -- SQL holds more than was ever drawn here: this is an old state.
  redis.call('HDEL', KEYS[1], 'generation')
  return {'lost'}
end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = tonumber(ARGV[3]) or time[1] * 1000000 + time[2]
local opens, expires = gate[6], gate[7]
if ARGV[3] == '' and opens .. expires ~= '' then
  -- Time never falls, whatever becomes of this server's clock: what was told to be expired stays so.
  -- Nor is anybody let in by an instant before that of the last claim, which the next one bears at least.
  now = math.max(now, tonumber(gate[13]), tonumber(gate[10]))
  redis.call('HSET', KEYS[1], 'clock', string.format('%.0f', now))
end
local closed = false
if gate[8] == '1' then closed = 'd'
elseif opens ~= '' and now < tonumber(opens) then closed = 'o' .. opens
elseif expires ~= '' and tonumber(expires) <= now then closed = 'x' .. expires end
local backlog, count = tonumber(ARGV[6]), tonumber(ARGV[7])
local users, keys, key_at = {}, {}, {}
for at = 1, count do
  users[at] = ARGV[5 + 4 * at]
  local key = ARGV[6 + 4 * at]
  if key ~= '' then
    keys[#keys + 1] = key
    key_at[at] = #keys
  end
end
local held = redis.call('HMGET', KEYS[2], unpack(users))
local known = #keys > 0 and redis.call('HMGET', KEYS[3], unpack(keys)) or {}
local answers, drawn, drawn_keys, records, to_users, to_keys = {}, {}, {}, {}, {}, {}
local first = ticket + 1
for at = 1, count do
  local user, key, body = users[at], ARGV[6 + 4 * at], ARGV[7 + 4 * at]
  local request = key ~= '' and (drawn_keys[key] or known[key_at[at]])
  local has = drawn[user] or held[at]
  if request then
    local of, by = string.match(request, '^(%x*):(%d+)$')
    answers[at] = (of == body and 'r' or 'k') .. by
  elseif has then answers[at] = 'a' .. has
  elseif closed then answers[at] = closed
  elseif limit <= ticket - void then answers[at] = 's' .. ticket
  elseif backlog <= ticket - position then answers[at] = 'b'
  else
    ticket = ticket + 1
    drawn[user] = ticket
    to_users[#to_users + 1], to_users[#to_users + 2] = user, ticket
    if key ~= '' then
      drawn_keys[key] = body .. ':' .. ticket
      to_keys[#to_keys + 1], to_keys[#to_keys + 2] = key, drawn_keys[key]
    end
    records[#records + 1] = ARGV[8 + 4 * at]
    answers[at] = 'n' .. ticket
  end
end
local last = gate[10]
if first <= ticket then
  last = string.format('%.0f', math.max(now, tonumber(last)))
  -- The outbox first: if anything fails after it, the entry is there, and SQL decides.
  redis.call('XADD', KEYS[4], ticket .. '-1', 'first', first, 'version', gate[9], 'at', last, 'node', ARGV[4],
    'claims', table.concat(records))
  redis.call('HSET', KEYS[2], unpack(to_users))
  if #to_keys > 0 then redis.call('HSET', KEYS[3], unpack(to_keys)) end
  redis.call('HSET', KEYS[1], 'ticket', ticket, 'last', last)
end
local drains = 0
-- A lease that ends later than any can is one from before somebody set the clock back. Whoever cannot write gives it up.
local ends, lease = tonumber(gate[12]), tonumber(ARGV[5])
if ARGV[8] == '0' then
  if gate[11] == ARGV[4] then redis.call('HSET', KEYS[1], 'node', '', 'until', 0) end
elseif position < ticket and (gate[11] == ARGV[4] or ends <= ms or ms + lease < ends) then
  drains = 1
  redis.call('HSET', KEYS[1], 'node', ARGV[4], 'until', string.format('%.0f', ms + lease))
end
return {'ok', drains, gate[9], last, answers}
