-- What the steps share: the rules of firstcome-core's lock.rs, on one bucket. Same names, same order.
--
-- Keys of a bucket: its counter, the lives of processes, and for each lock in use
--   hold   request lease_ms fence passes expires_us taken owner
--   line   sorted set: request -> number
--   rest   hash: request -> lease_ms passes owner, of those in line
-- A request is 16 hexadecimal digits of its process, a colon, and its number. Numbers are below 2^53, so doubles carry
-- them exactly; they are never made a text by `..`, which keeps 14 digits.

-- Longer than anybody may wait: keys of a line in which nobody lives go away by themselves, and its hold after it.
local LINE_MS = 7200000

local function text(number)
  return string.format('%.0f', number)
end

-- What is written at the end, once: the counter, and the lives that have changed.
local first, lives = last, {}

local function life_of(client)
  local life = lives[client]
  if life == nil then
    local number, seen_us = string.match(redis.call('HGET', KEYS[2], client) or '', '^(%d+) (%d+)$')
    life = number and { number = tonumber(number), seen_us = tonumber(seen_us) } or false
    lives[client] = life
  end
  return life
end

local function finish(answer)
  if last ~= first then
    redis.call('SET', KEYS[1], text(last))
  end
  for client, life in pairs(lives) do
    if life and life.changed then
      redis.call('HSET', KEYS[2], client, text(life.number) .. ' ' .. text(life.seen_us))
      redis.call('PEXPIRE', KEYS[2], LINE_MS)
    end
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
  if redis.call('HLEN', KEYS[2]) > 64 then
    local all = redis.call('HGETALL', KEYS[2])
    for at = 1, #all, 2 do
      if math.abs(now - tonumber(string.match(all[at + 1], ' (%d+)$'))) > 60000000 then
        redis.call('HDEL', KEYS[2], all[at])
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
  local held = redis.call('GET', key)
  if not held then
    return nil
  end
  local request, lease, fence, passes, expires, taken, owner =
    string.match(held, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d) (.*)$')
  return {
    request = request, lease = tonumber(lease), fence = tonumber(fence), passes = tonumber(passes),
    expires = tonumber(expires), taken = tonumber(taken), owner = owner,
  }
end

local function write(key, hold)
  local held = hold.request .. ' ' .. hold.lease .. ' ' .. text(hold.fence) .. ' ' .. hold.passes .. ' '
    .. text(hold.expires) .. ' ' .. hold.taken .. ' ' .. hold.owner
  redis.call('SET', key, held, 'PX', hold.lease + LINE_MS + 60000)
end

-- A new hold, with the next fence; a cohort's passes have fences of their own.
local function give(request, lease, passes, owner, taken)
  local fence = math.max(now, last + 1)
  last = fence + math.max(passes, 1) - 1
  local lasts_us = lease * 1000
  if taken == 0 then
    lasts_us = math.min(lasts_us, WINDOW_US)
  end
  return {
    request = request, lease = lease, fence = fence, passes = passes, expires = now + lasts_us, taken = taken,
    owner = owner,
  }
end

-- Takes the lock from whoever has it, and gives it to the oldest living waiter.
local function grant_next(keys, name)
  while true do
    local first = popped or redis.call('ZPOPMIN', keys.line)
    popped = nil
    if #first == 0 then
      redis.call('DEL', keys.hold)
      return nil
    end
    local request = first[1]
    local rest = redis.call('HGET', keys.rest, request)
    redis.call('HDEL', keys.rest, request)
    local lease, passes, owner = string.match(rest or '', '^(%d+) (%d+) (.*)$')
    local client = string.sub(request, 1, 16)
    if lease and not is_dead(client) then
      local hold = give(request, tonumber(lease), tonumber(passes), owner, 0)
      write(keys.hold, hold)
      redis.call('PUBLISH', INBOX .. client,
        name .. ' ' .. request .. ' ' .. text(hold.fence) .. ' ' .. text(hold.expires))
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
  local first = redis.call('ZRANGE', keys.line, 0, 0)[1]
  local of = first and string.sub(first, 1, 16)
  if of and of ~= client and not is_dead(of) then
    return 0
  end
  return 1
end
