-- Keeps an image, and forgets the entries before it.
-- KEYS log, entries, image
-- ARGV generation, position, branch, then the parts of the image
local log = redis.call('HMGET', KEYS[1], 'generation', 'position', 'branch')
-- Whoever follows another branch has another room.
if log[1] ~= ARGV[1] or log[3] ~= ARGV[3] or tonumber(log[2]) < tonumber(ARGV[2]) then return 0 end
if tonumber(ARGV[2]) <= tonumber(redis.call('HGET', KEYS[3], 'position') or 0) then return 1 end
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[3], 'position', ARGV[2], 'parts', #ARGV - 3)
for at = 4, #ARGV do redis.call('HSET', KEYS[3], at - 3, ARGV[at]) end
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2] .. '-2')
return 1
