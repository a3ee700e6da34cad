-- Gives entries of the log of a room, and whose it is. Changes nothing.
-- KEYS log, entries
-- ARGV generation, position seen, items_max
local log = redis.call('HMGET', KEYS[1], 'generation', 'position', 'branch', 'run')
if log[1] ~= ARGV[1] then return {} end
local is_same = log[4] == string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
return {log[2] or '', log[3] or '', is_same and 1 or 0,
  redis.call('XRANGE', KEYS[2], '(' .. ARGV[2] .. '-1', '+', 'COUNT', ARGV[3])}
