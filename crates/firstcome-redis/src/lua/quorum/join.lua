-- Lets this node vote, with a counter of so much at least. KEYS: node. ARGV: run, rejoin_ms, birth, counter.
-- Whether it does: not if it was born anew since, is not ripe, or others say that it must wait for another time.
local votes, birth, counter, rejoin = awake(call('GET', KEYS[1]))
if birth ~= ARGV[3] or rejoin ~= ARGV[2] or not (votes == '1' or is_ripe(birth)) then
  return 0
end
remember('1', birth, math.max(counter, tonumber(ARGV[4])))
return 1
