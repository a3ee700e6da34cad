-- Shows what the sequencer is.
-- KEYS sequencer, outbox of the generation that SQL names
-- ARGV position that SQL names
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'version', 'position')
local anchor = redis.call('XRANGE', KEYS[2], ARGV[1] .. '-1', ARGV[1] .. '-1')
local next = redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-1', '+', 'COUNT', 1)
return {sequencer[1] or '', sequencer[2] or '', sequencer[3] or '', sequencer[4] or '', anchor, next}
