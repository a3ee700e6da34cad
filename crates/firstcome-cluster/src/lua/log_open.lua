-- Opens the log of a new generation with an image, and throws the one before away.
-- KEYS lease, log, entries, image, nodes, then what is thrown away
-- ARGV node, generation, position, wall, steady, branch, offset of the steady time from the clock, then the parts of the
--      image
if redis.call('HGET', KEYS[1], 'node') ~= ARGV[1] then return 0 end
for at = 6, #KEYS do redis.call('UNLINK', KEYS[at]) end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local time = redis.call('TIME')
redis.call('HSET', KEYS[4], 'position', ARGV[3], 'parts', #ARGV - 7)
for at = 8, #ARGV do redis.call('HSET', KEYS[4], at - 7, ARGV[at]) end
redis.call('HSET', KEYS[2], 'generation', ARGV[2], 'position', ARGV[3], 'durable', ARGV[3], 'wall', ARGV[4],
  'steady', ARGV[5], 'ticked', ARGV[5], 'node', '', 'until', 0, 'branch', ARGV[6],
  'run', string.match(redis.call('INFO', 'server'), 'run_id:(%w+)'), 'offset', ARGV[7])
redis.call('HSET', KEYS[5], ARGV[1], math.floor(time[1] * 1000))
redis.call('DEL', KEYS[1])
return 1
