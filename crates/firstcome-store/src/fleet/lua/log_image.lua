-- Keeps an image, and forgets the entries before it.
-- KEYS log, entries, image
-- ARGV generation, position, then the parts of the image
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 0 end
if tonumber(ARGV[2]) <= tonumber(redis.call('HGET', KEYS[3], 'position') or 0) then return 1 end
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[3], 'position', ARGV[2], 'parts', #ARGV - 2)
for at = 3, #ARGV do redis.call('HSET', KEYS[3], at - 2, ARGV[at]) end
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2] .. '-2')
return 1
