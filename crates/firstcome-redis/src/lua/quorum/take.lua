-- Asks for a lock.
-- KEYS: node, lock, turn, waiters. ARGV: run, rejoin_ms, word, lease_ms, hint, passes; of one who waits also
-- member, score, most, stay_ms.
-- 1 and the last of the numbers drawn; 0 and how long another has it, in ms; 2, the birth and whether it is ripe: it does not vote;
-- 3: never; 4 and the time that others say a node must wait.
local known = call('MGET', KEYS[1], KEYS[2], KEYS[3])
local votes, birth, counter, rejoin = awake(known[1])
if rejoin ~= ARGV[2] then
  return { 4, tonumber(rejoin) }
end
if tonumber(ARGV[2]) < tonumber(ARGV[4]) then
  return { 3 }
end
if votes == '0' then
  return { 2, tonumber(birth), is_ripe(birth) and 1 or 0 }
end

local word, fence = holder(known[2], birth)
if word == ARGV[3] then
  return { 1, fence }
end
-- Whoever was told that it is his turn has a moment in which nobody comes before him.
local turn = known[3]
if word or turn and turn ~= ARGV[7] then
  if ARGV[7] and call('ZCARD', KEYS[4]) < tonumber(ARGV[9]) then
    call('ZADD', KEYS[4], 'NX', ARGV[8], ARGV[7])
    call('PEXPIRE', KEYS[4], ARGV[10])
  end
  return { 0, call('PTTL', KEYS[word and 2 or 3]) }
end

local drawn = math.max(counter, tonumber(ARGV[5])) + ARGV[6]
if 9007199254740992 <= drawn then
  return { 3 }
end
remember('1', birth, drawn)
call('SET', KEYS[2], ARGV[3] .. ' ' .. string.format('%.0f', drawn) .. ' ' .. birth, 'PX', ARGV[4])
if ARGV[7] then
  call('ZREM', KEYS[4], ARGV[7])
  if turn then
    call('DEL', KEYS[3])
  end
end
return { 1, drawn }
