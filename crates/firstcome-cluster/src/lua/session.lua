-- Tells whether a session has ended. With a time it ends the session first, and remembers that for so long.
-- KEYS the end of the session
-- ARGV milliseconds, or nothing
if ARGV[1] then redis.call('SET', KEYS[1], 1, 'PX', ARGV[1]) end
return redis.call('GET', KEYS[1]) and 1 or 0
