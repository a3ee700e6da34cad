-- The clocks of a room, in front of each script that adds to its log: wall and steady time, how far the steady one is behind this
-- server's clock, and that clock. The first two are given, or nil; so is the steady time as the caller's own clock has it.
local function time_of(wall, steady, expected, offset, last_wall, last_steady)
  local time = redis.call('TIME')
  local clock = time[1] * 1000000 + time[2]
  if not wall then
    wall, steady = clock, clock - offset
    -- Somebody has set this server's clock, or it is another server's: time goes on as the caller's own, steady one has. What lay
    -- on its way for long expects too little.
    if expected and (steady < expected - 1000000 or expected + 5000000 < steady) then
      offset = clock - expected
      steady = expected
    end
  end
  return math.max(wall, last_wall), math.max(steady, last_steady), offset, clock
end
