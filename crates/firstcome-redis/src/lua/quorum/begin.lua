-- Lets this node vote at once. Only for a set that has never granted anything. KEYS: node. ARGV: run, rejoin_ms.
local _, birth, counter = awake(call('GET', KEYS[1]))
remember('1', birth, counter)
return 1
