-- Shows what the gate is.
-- KEYS gate, outbox of the generation that SQL names
-- ARGV position that SQL names
local gate = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'version', 'position')
local anchor = redis.call('XRANGE', KEYS[2], ARGV[1] .. '-1', ARGV[1] .. '-1')
local next = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-1', '+', 'COUNT', 1)
return {gate[1] or '', gate[2] or '', gate[3] or '', gate[4] or '', anchor, next}
