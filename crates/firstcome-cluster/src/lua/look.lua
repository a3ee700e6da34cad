-- Shows a sequencer, and some entries of its outbox. Changes nothing.
-- KEYS sequencer, outbox of the generation that SQL names, lease
-- ARGV position that SQL names, ticket after which entries are wanted, how many
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'void', 'position', 'version', 'limit', 'opens', 'expires',
  'deleted', 'until')
local time = redis.call('TIME')
return {sequencer, redis.call('HGET', KEYS[3], 'until') or '', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)),
  redis.call('XRANGE', KEYS[2], ARGV[1] .. '-1', ARGV[1] .. '-1'),
  redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-1', '+', 'COUNT', ARGV[3])}
