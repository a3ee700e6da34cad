-- Shows some of the users whom a gate knows, if it is of this generation. Changes nothing.
-- KEYS gate, users
-- ARGV generation, cursor, about how many
local gate = redis.call('HMGET', KEYS[1], 'generation', 'position', 'ticket')
if gate[1] ~= ARGV[1] then return {} end
local page = redis.call('HSCAN', KEYS[2], ARGV[2], 'COUNT', ARGV[3])
return {gate[2], gate[3], page[1], page[2]}
