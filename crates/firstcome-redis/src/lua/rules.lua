
-- What the steps share: the rules of firstcome-core's lock.rs, on one bucket. Same names, same order.
--
-- Keys of a bucket: its counter, the lives of processes, and for each lock in use
--   hold   request lease_ms passes owner fence from, and two signs: 1 if it is taken, + if somebody may be in line
--   line   sorted set: request -> number
--   rest   hash: request -> lease_ms passes owner, of those in line
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
  return { hold = bucket .. 'h:' .. name, line = bucket .. 'q:' .. name, rest = bucket .. 'w:' .. name }
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

local function read(key)
  local held = call('GET', key)
  if not held then
    return nil
  end
  local request, lease, passes, owner, fence, from, taken =
    string.match(held, '^(%S+) (%d+) (%d+) (%S+) (%d+) (%d+) (%d).$')
  return {
    request = request, lease = tonumber(lease), passes = tonumber(passes), owner = owner, fence = tonumber(fence),
    taken = tonumber(taken), expires = from + lasts_us(lease, taken),
  }
end

local function write(key, hold)
  local from = hold.expires - lasts_us(hold.lease, hold.taken)
  local held = hold.request .. ' ' .. hold.lease .. ' ' .. hold.passes .. ' ' .. hold.owner .. ' ' .. text(hold.fence)
    .. ' ' .. text(from) .. ' ' .. hold.taken .. '+'
  call('SET', key, held, 'PX', hold.lease + HOLD_MS)
end

-- A new hold, with the next fence; a cohort's passes have fences of their own.
local function give(request, lease, passes, owner, taken)
  local fence = math.max(now, last + 1)
  last = fence + math.max(passes, 1) - 1
  return {
    request = request, lease = lease, passes = passes, owner = owner, fence = fence, taken = taken,
    expires = now + lasts_us(lease, taken),
  }
end

-- Takes the lock from whoever has it, and gives it to the oldest living waiter.
local function grant_next(keys, name)
  while true do
    local first = popped or call('ZPOPMIN', keys.line)
    popped = nil
    if #first == 0 then
      call('DEL', keys.hold)
      return nil
    end
    local request = first[1]
    local rest = call('HGET', keys.rest, request)
    call('HDEL', keys.rest, request)
    local lease, passes, owner = string.match(rest or '', '^(%d+) (%d+) (%S+)$')
    local client = string.sub(request, 1, 16)
    if lease and not is_dead(client) then
      local hold = give(request, tonumber(lease), tonumber(passes), owner, 0)
      write(keys.hold, hold)
      local told = name .. ' ' .. request .. ' ' .. text(hold.fence) .. ' ' .. clock_text .. ' ' .. lease
      pushes[#pushes + 1] = { INBOX .. client, told }
      return hold
    end
    interrupt(client)
  end
end

-- Ends a hold whose time is over. Returns the hold that stands now.
local function advance(keys, name)
  local hold = read(keys.hold)
  if not hold then
    return grant_next(keys, name)
  end
  if hold.expires <= now then
    if hold.taken == 0 then
      interrupt(string.sub(hold.request, 1, 16))
    end
    return grant_next(keys, name)
  end
  local longest = now + hold.lease * 1000
  if longest < hold.expires then
    hold.expires = longest
    write(keys.hold, hold)
  end
  return hold
end

-- 1 if the process is to look again when the hold ends.
local function is_head(keys, client)
  local first = call('ZRANGE', keys.line, 0, 0)[1]
  local of = first and string.sub(first, 1, 16)
  if of and of ~= client and not is_dead(of) then
    return 0
  end
  return 1
end
