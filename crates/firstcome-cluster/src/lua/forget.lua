-- Forgets a ticket that SQL did not accept.
-- KEYS sequencer, users, keys
-- ARGV generation, ticket, user, key or '', body: whoever drew the ticket may have said another one
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[2], ARGV[3]) == ARGV[2] then redis.call('HDEL', KEYS[2], ARGV[3]) end
local request = ARGV[4] ~= '' and redis.call('HGET', KEYS[3], ARGV[4])
if request and string.match(request, ':(%d+)$') == ARGV[2] then redis.call('HDEL', KEYS[3], ARGV[4]) end
return 1
