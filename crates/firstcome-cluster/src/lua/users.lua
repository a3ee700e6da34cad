-- Shows some of the users whom a sequencer knows, if it is of this generation. Changes nothing.
-- KEYS sequencer, users
-- ARGV generation, cursor, about how many
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'position', 'ticket')
if sequencer[1] ~= ARGV[1] then return {} end
local page = redis.call('HSCAN', KEYS[2], ARGV[2], 'COUNT', ARGV[3])
return {sequencer[2], sequencer[3], page[1], page[2]}
