-- Raises the counter to a fence, if this word has the lock. KEYS: node, lock. ARGV: run, rejoin_ms, word, fence.
local known = call('MGET', KEYS[1], KEYS[2])
local votes, birth, counter = awake(known[1])
if holder(known[2], birth) ~= ARGV[3] then
  return 0
end
if counter < tonumber(ARGV[4]) then
  remember(votes, birth, ARGV[4])
end
return 1
