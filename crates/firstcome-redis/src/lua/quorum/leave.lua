-- Somebody waits no longer: if it was his turn, it is that of the next one. ARGV: member, turn_ms, token.
call('ZREM', KEYS[3], ARGV[1])
if call('GET', KEYS[2]) == ARGV[1] then
  call('DEL', KEYS[2])
  if call('EXISTS', KEYS[1]) == 0 then
    next_turn(ARGV[2], ARGV[3])
  end
end
return 1
