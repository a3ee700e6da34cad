-- Takes the lease under which one node makes the gate anew.
-- KEYS lease
-- ARGV node, lease_ms
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
