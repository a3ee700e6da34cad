-- Takes the lock of this word away. ARGV: word, turn_ms or 0 to tell nobody, token. Whether it was there.
local held = call('GET', KEYS[1])
if not held or string.match(held, '^%S+') ~= ARGV[1] then
  return 0
end
call('DEL', KEYS[1])
if ARGV[2] ~= '0' then
  next_turn(ARGV[2], ARGV[3])
end
return 1
