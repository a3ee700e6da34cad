
-- What the steps share: the rules of firstcome-core's lock.rs, on one bucket. Same names, same order.
--
-- Keys of a bucket: its counter, the lives of processes, and for each lock in use
--   hold   request lease_ms passes owner fence from, and two signs: 1 if it is taken, + if a request may be in line
--   others if requests share the lock: those after the first, a line each: request lease_ms passes owner expires taken
--   line   sorted set: request -> place
--   rest   hash: request -> lease_ms passes owner, of those in line
-- The passes of a shared request are its permits with a minus. Its place is its number less 2^53, so that all shared
-- requests come before all exclusive ones.
-- A hold lasts its lease from `from`, or a claim window if it is not taken yet. A request is 16 hexadecimal digits of its
-- process, a colon, and its number. Numbers are below 2^53, so doubles carry them exactly, and are written with 16 digits;
-- never by `..`, which keeps 14 of them. The counter is followed by a `v` while anything is void.

local function text(number)
  return string.format('%016.0f', number)
end

-- What is written at the end, once: the counter, and the lives that have changed. And who is told then.
local counter = call('GET', COUNTER) or '0'
local last, lives, pushes = tonumber(string.match(counter, '^%d+')), {}, {}
local some_void = string.sub(counter, -1) == 'v' and call('EXISTS', VOIDS) == 1

local function keys_of(name)
  return {
    hold = bucket .. 'h:' .. name, others = bucket .. 'o:' .. name, line = bucket .. 'q:' .. name,
    rest = bucket .. 'w:' .. name,
  }
end

local function life_of(client)
  local life = lives[client]
  if life == nil then
    local number, seen_us = string.match(call('HGET', LIVES, client) or '', '^(%d+) (%d+)$')
    life = number and { number = tonumber(number), seen_us = tonumber(seen_us) } or false
    lives[client] = life
  end
  return life
end

local function finish(answer)
  local written = text(last) .. (some_void and ' v' or '')
  if written ~= counter then
    call('SET', COUNTER, written)
  end
  for client, life in pairs(lives) do
    if life and life.changed then
      call('HSET', LIVES, client, text(life.number) .. ' ' .. text(life.seen_us))
      call('PEXPIRE', LIVES, LINE_MS)
    end
  end
  for _, push in ipairs(pushes) do
    call('PUBLISH', push[1], push[2])
  end
  return answer
end

-- Whether a process has missed a whole window, or was heard of in a future that a clock set back has taken away.
local function is_dead(client)
  local life = life_of(client)
  return not life or WINDOW_US < math.abs(now - life.seen_us)
end

local function draw()
  last = math.max(now, last + 1)
  return last
end

local function forget_the_silent()
  if call('HLEN', LIVES) > 64 then
    local all = call('HGETALL', LIVES)
    for at = 1, #all, 2 do
      if math.abs(now - tonumber(string.match(all[at + 1], ' (%d+)$'))) > 60000000 then
        call('HDEL', LIVES, all[at])
      end
    end
  end
end

local function touch(client)
  local life = life_of(client)
  if is_dead(client) then
    forget_the_silent()
    life = { number = draw() }
    lives[client] = life
  elseif math.abs(now - life.seen_us) < FRESH_US then
    return life.number
  end
  life.seen_us, life.changed = now, true
  return life.number
end

-- A process has lost a place in line, and may not know it: it asks again with its next sign of life.
local function interrupt(client)
  local life = life_of(client)
  if life then
    life.number, life.changed = draw(), true
  end
end

local function read(keys)
  local held = call('GET', keys.hold)
  if not held then
    return nil
  end
  local request, lease, passes, owner, fence, from, taken =
    string.match(held, '^(%S+) (%d+) (%-?%d+) (%S+) (%d+) (%d+) (%d).$')
  local hold = {
    request = request, lease = tonumber(lease), passes = tonumber(passes), owner = owner, fence = tonumber(fence),
    taken = tonumber(taken), expires = from + lasts_us(lease, taken), others = {},
  }
  if hold.passes < 0 then
    local pattern = '(%S+) (%d+) (%-%d+) (%S+) (%d+) (%d)'
    for r, l, p, o, e, t in string.gmatch(call('GET', keys.others) or '', pattern) do
      hold.others[#hold.others + 1] = {
        request = r, lease = tonumber(l), passes = tonumber(p), owner = o, expires = tonumber(e), taken = tonumber(t),
      }
    end
  end
  return hold
end

-- How long the keys of a hold stay.
local function stays_ms(hold)
  local longest = hold.lease
  for _, other in ipairs(hold.others) do
    longest = math.max(longest, other.lease)
  end
  return longest + HOLD_MS
end

local function write(keys, hold)
  local from = hold.expires - lasts_us(hold.lease, hold.taken)
  local held = hold.request .. ' ' .. hold.lease .. ' ' .. hold.passes .. ' ' .. hold.owner .. ' ' .. text(hold.fence)
    .. ' ' .. text(from) .. ' ' .. hold.taken .. '+'
  local stays = stays_ms(hold)
  call('SET', keys.hold, held, 'PX', stays)
  if hold.passes < 0 then
    local lines = {}
    for at, other in ipairs(hold.others) do
      lines[at] = other.request .. ' ' .. other.lease .. ' ' .. other.passes .. ' ' .. other.owner .. ' '
        .. text(other.expires) .. ' ' .. other.taken
    end
    call(unpack(#lines == 0 and { 'DEL', keys.others } or
      { 'SET', keys.others, table.concat(lines, '\n'), 'PX', stays }))
  end
end

-- A new hold, with the next fence; a cohort's passes have fences of their own.
local function give(request, lease, passes, owner, taken)
  local fence = math.max(now, last + 1)
  last = fence + math.max(passes, 1) - 1
  return {
    request = request, lease = lease, passes = passes, owner = owner, fence = fence, taken = taken,
    expires = now + lasts_us(lease, taken), others = {},
  }
end

local function tell(name, waiter, fence)
  local told = name .. ' ' .. waiter.request .. ' ' .. text(fence) .. ' ' .. clock_text .. ' ' .. waiter.lease
  pushes[#pushes + 1] = { INBOX .. string.sub(waiter.request, 1, 16), told }
end

-- Takes a request out of the line. Returns nothing if its process is dead.
local function take_out(keys, request)
  local rest = call('HGET', keys.rest, request)
  call('HDEL', keys.rest, request)
  local lease, passes, owner = string.match(rest or '', '^(%d+) (%-?%d+) (%S+)$')
  local client = string.sub(request, 1, 16)
  if lease and not is_dead(client) then
    return { request = request, lease = tonumber(lease), passes = tonumber(passes), owner = owner }
  end
  interrupt(client)
end

local function first_exclusive(keys)
  return call('ZRANGEBYSCORE', keys.line, '0', '+inf', 'LIMIT', 0, 1)[1]
end

local function first_shared(keys)
  return call('ZRANGEBYSCORE', keys.line, '-inf', '(0', 'LIMIT', 0, 1)[1]
end

local function has_room(hold, passes)
  return #hold.others + 1 < -passes
end

-- Whether an exclusive request of a living process waits. Those of dead processes leave the line.
local function exclusive_waits(keys)
  while true do
    local request = first_exclusive(keys)
    if not request then
      return false
    end
    local client = string.sub(request, 1, 16)
    if not is_dead(client) then
      return true
    end
    call('ZREM', keys.line, request)
    call('HDEL', keys.rest, request)
    interrupt(client)
  end
end

-- Lets shared waiters share the lock, in order, as long as there is room. Returns whether any does.
local function admit(keys, name, hold, begins)
  local before = #hold.others
  while true do
    local first = first_shared(keys)
    local passes = first and string.match(call('HGET', keys.rest, first) or '', '^%d+ (%S+)')
    local fits = first and (not passes or has_room(hold, tonumber(passes)))
    if not fits or not begins and exclusive_waits(keys) then
      return before < #hold.others
    end
    call('ZREM', keys.line, first)
    local other = take_out(keys, first)
    if other then
      other.taken, other.expires = 0, now + lasts_us(other.lease, 0)
      hold.others[#hold.others + 1] = other
      tell(name, other, hold.fence)
    end
  end
end

-- Takes the lock from its holder, and gives it to the oldest living waiter: after a shared hold to the oldest exclusive
-- one, else to the oldest shared one with all that may share it.
local function grant_next(keys, name, was_shared)
  while true do
    local request = popped and popped[1]
    popped = nil
    if not request and was_shared then
      request = first_exclusive(keys)
      if request then
        call('ZREM', keys.line, request)
      end
    end
    request = request or call('ZPOPMIN', keys.line)[1]
    if not request then
      call('DEL', keys.hold)
      return nil
    end
    local next = take_out(keys, request)
    if next then
      local hold = give(request, next.lease, next.passes, next.owner, 0)
      tell(name, next, hold.fence)
      if hold.passes < 0 then
        admit(keys, name, hold, true)
      end
      write(keys, hold)
      return hold
    end
  end
end

-- Ends a hold no later than its lease from now. Returns whether that changes it.
local function shorten(hold)
  local longest = now + hold.lease * 1000
  if longest < hold.expires then
    hold.expires = longest
    return true
  end
  return false
end

-- Writes who still shares the lock after others ended, and grants what has become free.
local function stand(keys, name, fence, sharers)
  local hold = table.remove(sharers, 1)
  if not hold then
    call('DEL', keys.others)
    return grant_next(keys, name, true)
  end
  hold.fence, hold.others = fence, sharers
  shorten(hold)
  for _, other in ipairs(sharers) do
    shorten(other)
  end
  admit(keys, name, hold, false)
  write(keys, hold)
  return hold
end

-- The requests that have the lock, in the order of their grants.
local function sharers_of(hold)
  local sharers = { hold }
  for at, other in ipairs(hold.others) do
    sharers[at + 1] = other
  end
  return sharers
end

local function held_by(hold, request)
  for _, sharer in ipairs(sharers_of(hold)) do
    if sharer.request == request then
      return sharer
    end
  end
end

-- Ends the holds whose time is over of those that share the lock.
local function advance_shared(keys, name, hold)
  local standing, all, changed = {}, sharers_of(hold), false
  for _, sharer in ipairs(all) do
    if now < sharer.expires then
      standing[#standing + 1] = sharer
    elseif sharer.taken == 0 then
      interrupt(string.sub(sharer.request, 1, 16))
    end
  end
  if #standing < #all then
    return stand(keys, name, hold.fence, standing)
  end
  for _, sharer in ipairs(all) do
    changed = shorten(sharer) or changed
  end
  if admit(keys, name, hold, false) or changed then
    write(keys, hold)
  end
  return hold
end

-- Ends a hold whose time is over. Returns the hold that stands now.
local function advance(keys, name)
  local hold = read(keys)
  if not hold then
    return grant_next(keys, name)
  end
  if hold.passes < 0 then
    return advance_shared(keys, name, hold)
  end
  if hold.expires <= now then
    if hold.taken == 0 then
      interrupt(string.sub(hold.request, 1, 16))
    end
    return grant_next(keys, name)
  end
  if shorten(hold) then
    write(keys, hold)
  end
  return hold
end

-- When the lock may have room for a request with these passes.
local function free_at(hold, passes)
  local at = hold.expires
  for _, other in ipairs(hold.others) do
    at = passes < 0 and math.min(at, other.expires) or 0 <= passes and math.max(at, other.expires) or at
  end
  return at
end

-- What a waiting process sees: when the lock may be free, the lease, and 1 if it is to look then.
local function seen(keys, hold, client)
  local next, expires = nil, hold.expires
  if hold.passes < 0 then
    next = first_exclusive(keys)
    expires = next and free_at(hold, 1) or expires
  end
  if not next then
    next = call('ZRANGE', keys.line, 0, 0)[1]
    expires = next and hold.passes < 0 and free_at(hold, -1) or expires
  end
  local of = next and string.sub(next, 1, 16)
  return expires, hold.lease, (of and of ~= client and not is_dead(of)) and 0 or 1
end

-- Who has the lock now: the first one, and how many.
local function living(hold)
  local first, count = nil, 0
  for _, sharer in ipairs(hold and sharers_of(hold) or {}) do
    if now < sharer.expires then
      first, count = first or sharer, count + 1
    end
  end
  return first, count
end
