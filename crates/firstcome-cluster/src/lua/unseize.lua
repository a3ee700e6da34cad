-- Gives the lease back under which one node makes the sequencer anew.
-- KEYS lease
-- ARGV node
if redis.call('HGET', KEYS[1], 'node') == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
