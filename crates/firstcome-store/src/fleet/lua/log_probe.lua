-- Shows what the log of a room is.
-- KEYS log, image of the generation that SQL names
local log = redis.call('HMGET', KEYS[1], 'generation', 'position')
return {log[1] or '', log[2] or '', redis.call('HGET', KEYS[2], 'position') or '', redis.call('TIME')}
