-- Brings in users, or keys of requests, whose claims SQL holds.
-- KEYS lease, users or keys
-- ARGV node, lease_ms, then name and value of each
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if #ARGV > 2 then redis.call('HSET', KEYS[2], unpack(ARGV, 3)) end
return 1
