-- Shows what the log of a room is.
-- KEYS log, image of the generation that SQL names
local log = redis.call('HMGET', KEYS[1], 'generation', 'position', 'run', 'durable')
local is_same = log[3] == string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
return {log[1] or '', log[2] or '', redis.call('HGET', KEYS[2], 'position') or '', redis.call('TIME'),
  is_same and 1 or 0, log[4] or ''}
