-- Says to which deployment all keys belong: to this one from now on, if to none.
-- KEYS the mark
-- ARGV this deployment
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('GET', KEYS[1])
