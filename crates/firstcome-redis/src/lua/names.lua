
local now = tonumber(clock_text)
local bucket = string.sub(KEYS[1], 1, 9)
-- The highest number drawn; the lives of processes; what was given up before it arrived.
local COUNTER, LIVES, VOIDS = bucket .. 'n', bucket .. 'c', bucket .. 'x'
local INBOX = 'fc:inbox:'
local WINDOW_US, FRESH_US, VOID_MS = 2000000, 500000, 60000
-- Longer than anybody may wait: keys of a line in which nobody lives go away by themselves, and its hold after it.
local LINE_MS = 7200000
local HOLD_MS = LINE_MS + 60000
-- By so much the places of shared requests are below their numbers.
local LOWERED = 9007199254740992

-- How long a hold lasts from when it was given or renewed.
local function lasts_us(lease, taken)
  if tonumber(taken) == 0 then
    return math.min(lease * 1000, WINDOW_US)
  end
  return lease * 1000
end

-- Draws the clock as the next number. Returns the counter as it was, or nothing if it was above: then nothing is drawn.
local function draw_clock()
  local before = call('SET', COUNTER, clock_text, 'GET') or '0'
  if clock_text <= before then
    call('SET', COUNTER, before)
    return nil
  end
  -- The sign stays while anything is void. One run in ten asks whether that is so: the sign may outlast it.
  if string.sub(before, -1) == 'v' and (string.sub(clock_text, -1) ~= '0' or call('EXISTS', VOIDS) == 1) then
    call('SET', COUNTER, clock_text .. ' v')
  end
  return before
end

-- Who was taken out of a line already.
local popped
