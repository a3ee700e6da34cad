-- What this node knows, for one that has to join. KEYS: node. ARGV: run, rejoin_ms. The counter, and whether it votes.
local votes, _, counter = awake(call('GET', KEYS[1]))
return { counter, tonumber(votes) }
