-- Says that this run of this server goes on with a log whose end may be lost: once for each run.
-- KEYS log, entries
-- ARGV generation, position that it has at least, wall or '', steady or '', steady as the caller expects it or '', branch,
--      the word as bytes
local log = redis.call('HMGET', KEYS[1], 'generation', 'position', 'wall', 'steady', 'offset', 'run')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if log[1] ~= ARGV[1] or log[6] == run or tonumber(log[2]) < tonumber(ARGV[2]) then return 0 end
local wall, steady, offset = time_of(tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(log[5]),
  tonumber(log[3]), tonumber(log[4]))
local text_wall, text_steady = string.format('%.0f', wall), string.format('%.0f', steady)
local position = log[2] + 1
redis.call('XADD', KEYS[2], position .. '-1', 'first', position, 'wall', text_wall, 'steady', text_steady, 'entries', ARGV[7])
redis.call('HSET', KEYS[1], 'run', run, 'branch', ARGV[6], 'position', position, 'wall', text_wall, 'steady', text_steady,
  'offset', string.format('%.0f', offset), 'node', '', 'until', 0)
return 1
