-- Judges claims in their order, draws tickets, and appends what was accepted to the outbox as one entry.
-- KEYS sequencer, users, keys, outbox
-- ARGV generation, position known to be in SQL, instant or '', node, lease_ms, backlog_max, count, whether the caller can
--      write to SQL, records of all claims, where each ends as 4 bytes, user of each; then of each that has one: number, key, body
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'void', 'position', 'limit', 'opens', 'expires',
  'deleted', 'version', 'last', 'node', 'until', 'clock')
if sequencer[1] ~= ARGV[1] then return {'lost'} end
local ticket, void, position, limit = tonumber(sequencer[2]), tonumber(sequencer[3]), tonumber(sequencer[4]), tonumber(sequencer[5])
if ticket < tonumber(ARGV[2]) then
  -- SQL holds more than was ever drawn here: this is an old state.
  redis.call('HDEL', KEYS[1], 'generation')
  return {'lost'}
end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = tonumber(ARGV[3]) or time[1] * 1000000 + time[2]
local opens, expires = sequencer[6], sequencer[7]
if ARGV[3] == '' and opens .. expires ~= '' then
  -- Time never falls, whatever becomes of this server's clock: what was told to be expired stays so.
  -- Nor is anybody let in by an instant before that of the last claim, which the next one bears at least.
  now = math.max(now, tonumber(sequencer[13]), tonumber(sequencer[10]))
  redis.call('HSET', KEYS[1], 'clock', string.format('%.0f', now))
end
local closed = false
if sequencer[8] == '1' then closed = 'd'
elseif opens ~= '' and now < tonumber(opens) then closed = 'o' .. opens
elseif expires ~= '' and tonumber(expires) <= now then closed = 'x' .. expires end
local backlog, count = tonumber(ARGV[6]), tonumber(ARGV[7])
local ends = ARGV[10]
local users, keys, key_of, body_of, key_at = {}, {}, {}, {}, {}
for at = 1, count do users[at] = ARGV[10 + at] end
for from = 11 + count, #ARGV, 3 do
  local at = tonumber(ARGV[from])
  keys[#keys + 1] = ARGV[from + 1]
  key_of[at], body_of[at], key_at[at] = ARGV[from + 1], ARGV[from + 2], #keys
end
local held = redis.call('HMGET', KEYS[2], unpack(users))
local known = #keys > 0 and redis.call('HMGET', KEYS[3], unpack(keys)) or {}
local answers, drawn, drawn_keys, drawn_at, to_users, to_keys, sold_out = {}, {}, {}, {}, {}, {}
local first = ticket + 1
for at = 1, count do
  local user, key = users[at], key_of[at]
  local request = key and (drawn_keys[key] or known[key_at[at]])
  local has = drawn[user] or held[at]
  if request then
    local of, by = string.match(request, '^(%x*):(%d+)$')
    answers[at] = (of == body_of[at] and 'r' or 'k') .. by
  elseif has then answers[at] = 'a' .. has
  elseif closed then answers[at] = closed
  elseif limit <= ticket - void then
    sold_out = sold_out or 's' .. string.format('%d', ticket)
    answers[at] = sold_out
  elseif backlog <= ticket - position then answers[at] = 'b'
  else
    ticket = ticket + 1
    -- As text from here on: each conversion of a number costs more than all else that is done for a claim here.
    local text = string.format('%d', ticket)
    drawn[user] = text
    to_users[#to_users + 1], to_users[#to_users + 2] = user, text
    if key then
      drawn_keys[key] = body_of[at] .. ':' .. text
      to_keys[#to_keys + 1], to_keys[#to_keys + 2] = key, drawn_keys[key]
    end
    drawn_at[#drawn_at + 1] = at
    answers[at] = 'n' .. text
  end
end
local records = ARGV[9]
if #drawn_at < count then
  local some = {}
  for nth, at in ipairs(drawn_at) do
    local begins = at > 1 and struct.unpack('<I4', ends, 4 * at - 7) or 0
    some[nth] = string.sub(records, begins + 1, struct.unpack('<I4', ends, 4 * at - 3))
  end
  records = table.concat(some)
end
local last = sequencer[10]
if first <= ticket then
  last = string.format('%.0f', math.max(now, tonumber(last)))
  -- The outbox first: if anything fails after it, the entry is there, and SQL decides.
  redis.call('XADD', KEYS[4], ticket .. '-1', 'first', first, 'version', sequencer[9], 'at', last, 'node', ARGV[4],
    'claims', records)
  redis.call('HSET', KEYS[2], unpack(to_users))
  if #to_keys > 0 then redis.call('HSET', KEYS[3], unpack(to_keys)) end
  redis.call('HSET', KEYS[1], 'ticket', ticket, 'last', last)
end
local drains = 0
-- A lease that ends later than any can is one from before somebody set the clock back. Whoever cannot write gives it up.
local until_ms, lease = tonumber(sequencer[12]), tonumber(ARGV[5])
if ARGV[8] == '0' then
  if sequencer[11] == ARGV[4] then redis.call('HSET', KEYS[1], 'node', '', 'until', 0) end
elseif position < ticket and (sequencer[11] == ARGV[4] or until_ms <= ms or ms + lease < until_ms) then
  drains = 1
  redis.call('HSET', KEYS[1], 'node', ARGV[4], 'until', string.format('%.0f', ms + lease))
end
return {'ok', drains, sequencer[9], last, table.concat(answers, ' ')}
