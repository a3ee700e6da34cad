-- Opens the sequencer of a new generation.
-- KEYS lease, sequencer, users, keys, outbox
-- ARGV node, generation, position, void, version, limit, opens, expires, deleted, last, instant that has come
if redis.call('HGET', KEYS[1], 'node') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2], KEYS[5])
-- Names that nobody can have: while a cluster moves a slot it runs no script on keys of which one is not there.
redis.call('HSET', KEYS[3], '', 0)
redis.call('HSET', KEYS[4], '', ':0')
redis.call('XADD', KEYS[5], ARGV[3] .. '-1', 'generation', ARGV[2])
redis.call('HSET', KEYS[2], 'generation', ARGV[2], 'ticket', ARGV[3], 'position', ARGV[3], 'void', ARGV[4],
  'version', ARGV[5], 'limit', ARGV[6], 'opens', ARGV[7], 'expires', ARGV[8], 'deleted', ARGV[9], 'last', ARGV[10],
  'node', '', 'until', 0, 'clock', ARGV[11])
redis.call('DEL', KEYS[1])
return 1
