-- KEYS[1] is a key of the bucket; all keys of a bucket have its tag, and those that few runs touch are made up here.
local call = redis.call
local clock = call('TIME')
-- Numbers are written with 16 digits, so that they compare as texts too: that lasts until the year 2255.
local clock_text = clock[1] .. clock[2]
if #clock_text ~= 16 or #clock[2] ~= 6 then
  clock_text = string.sub('000000000' .. clock[1], -10) .. string.sub('00000' .. clock[2], -6)
end
