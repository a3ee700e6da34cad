if not fence_ok(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then
  return {0}
end
return {1, redis.call(ARGV[4], KEYS[2], unpack(ARGV, 5))}
