-- KEYS[1] is a key of the bucket; all keys of a bucket have its tag, and those that few runs touch are made up here.
local call = redis.call
local clock = call('TIME')
local clock_text = clock[1] .. (#clock[2] == 6 and clock[2] or string.sub('00000' .. clock[2], -6))
