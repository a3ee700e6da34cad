-- Gives the image.
-- KEYS log, image
-- ARGV generation
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return {} end
local parts = {}
for at = 1, tonumber(redis.call('HGET', KEYS[2], 'parts') or 0) do parts[at] = redis.call('HGET', KEYS[2], at) end
return parts
