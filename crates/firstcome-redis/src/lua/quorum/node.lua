-- What a node knows of itself, in one text: "1 run rejoin_ms birth_us counter"; 0 at the front while it does not vote.
-- KEYS[1] is its key, ARGV[1] the run of the server, ARGV[2] how long a node that has forgotten must wait, in ms.
-- Restates `core::lock::quorum::Node`.
local call = redis.call

local function now_us()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

local function remember(votes, birth, counter)
  call('SET', KEYS[1], votes .. ' ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. birth .. ' ' .. string.format('%.0f', counter))
end

-- Whoever comes first is its birth. A server that was started again is as one that is new, whatever it has read from its
-- disk: that may be older than what it had said. What it still knows makes the guess at a counter better.
local function awake(text)
  local votes, run, rejoin, birth, counter
  if text then
    votes, run, rejoin, birth, counter = string.match(text, '^([01]) (%S+) (%d+) (%d+) (%d+)$')
  end
  if run == ARGV[1] then
    return votes, birth, tonumber(counter), rejoin
  end
  local now = now_us()
  birth, counter = string.format('%.0f', now), math.max(now, tonumber(counter) or 0)
  remember('0', birth, counter)
  return '0', birth, counter, ARGV[2]
end

local function is_ripe(birth)
  return tonumber(birth) + ARGV[2] * 1000 <= now_us()
end

-- Who has a lock: "word fence birth". What was kept before the birth counts for nothing.
local function holder(text, birth)
  local word, fence, since
  if text then
    word, fence, since = string.match(text, '^(%S+) (%d+) (%d+)$')
  end
  if since == birth then
    return word, tonumber(fence)
  end
end
