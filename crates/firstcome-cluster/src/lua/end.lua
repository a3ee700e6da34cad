-- Throws away what is left of a coupon that is over, unless something waits in its stream.
-- KEYS sequencer, lease, then users, keys and outbox of its generations
-- ARGV generation and position that the database names, the latter '' if no stream goes on from there
local sequencer = redis.call('HMGET', KEYS[1], 'generation', 'ticket', 'deleted')
if sequencer[1] then
  -- The database went back: what it lacks is known here alone.
  if tonumber(ARGV[1]) < tonumber(sequencer[1]) then return 0 end
  local waits = sequencer[3] ~= '1' or tonumber(ARGV[2]) ~= tonumber(sequencer[2])
  if sequencer[1] == ARGV[1] and ARGV[2] ~= '' and waits then return 0 end
end
-- A node that rebuilds has no lease any more, and opens nothing.
redis.call('UNLINK', unpack(KEYS))
return 1
