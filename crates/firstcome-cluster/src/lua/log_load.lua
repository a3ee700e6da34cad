-- Gives the branch, and the image.
-- KEYS log, image
-- ARGV generation
local log = redis.call('HMGET', KEYS[1], 'generation', 'branch')
if log[1] ~= ARGV[1] then return {} end
local parts = {log[2]}
for at = 1, tonumber(redis.call('HGET', KEYS[2], 'parts') or 0) do parts[at + 1] = redis.call('HGET', KEYS[2], at) end
return parts
