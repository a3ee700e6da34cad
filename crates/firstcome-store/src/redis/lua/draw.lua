
-- Draws a number, or the first of so many, and returns it as it is written. Only a clock that was set back makes it
-- unlike the clock.
local function draw_written(count)
  local before, number = call('SET', KEYS[1], clock_text, 'GET'), clock_text
  if before and now <= tonumber(before) then
    number = string.format('%.0f', before + 1)
  end
  if number ~= clock_text or count ~= '1' then
    call('SET', KEYS[1], string.format('%.0f', number + math.max(count, 1) - 1))
  end
  return number
end
