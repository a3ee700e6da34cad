-- Lets a lock last for the lease from now on, and no shorter than before. A node that has no key gets it, also one that does
-- not vote. KEYS: node, lock. ARGV: run, rejoin_ms, word, lease_ms, fence. 1, or 0 if another has it.
local known = call('MGET', KEYS[1], KEYS[2])
local votes, birth, counter = awake(known[1])
local word = holder(known[2], birth)
if word and word ~= ARGV[3] then
  return 0
end
if word then
  if call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then
    call('PEXPIRE', KEYS[2], ARGV[4])
  end
  return 1
end
if counter < tonumber(ARGV[5]) then
  remember(votes, birth, ARGV[5])
end
call('SET', KEYS[2], ARGV[3] .. ' ' .. ARGV[5] .. ' ' .. birth, 'PX', ARGV[4])
return 1
