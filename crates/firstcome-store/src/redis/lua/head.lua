-- KEYS[1] is the counter of a bucket, whose keys all have its tag.
local call = redis.call
local clock = call('TIME')
local clock_text = clock[1] .. string.sub('00000' .. clock[2], -6)
local now = tonumber(clock_text)
local WINDOW_US = 2000000
local FRESH_US = 500000
local INBOX = 'fc:inbox:'
-- Longer than anybody may wait: keys of a line in which nobody lives go away by themselves, and its hold after it.
local LINE_MS = 7200000
local HOLD_MS = LINE_MS + 60000

-- How long a hold lasts from when it was given or renewed.
local function lasts_us(lease, taken)
  local us = lease * 1000
  if tonumber(taken) == 0 and WINDOW_US < us then
    return WINDOW_US
  end
  return us
end
