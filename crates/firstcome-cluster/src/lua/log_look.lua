-- Shows the log of a room, and some of its items. Changes nothing.
-- KEYS log, entries and image of the generation that SQL names, lease
-- ARGV position after which items are wanted, how many
local log = redis.call('HMGET', KEYS[1], 'generation', 'position', 'until')
local time = redis.call('TIME')
return {log, redis.call('HGET', KEYS[4], 'until') or '', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)),
  redis.call('HGET', KEYS[3], 'position') or '', redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-1', '+', 'COUNT', ARGV[2])}
