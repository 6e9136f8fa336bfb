-- KEYS: pending, claims, ended.
-- Answer: the numbers of pending, claimed and finished jobs; priority and the
-- submission [µs since BASE] of the oldest pending job as strings, empty for none.
-- It stands alone, because all classes are counted at every tick.
local SPAN = 900000000000000 -- as in queue.lua
local PENDING, CLAIMS, ENDED = KEYS[1], KEYS[2], KEYS[3]
local call = redis.call
local function int(x) return string.format('%.0f', x) end

local pending = call('ZCARD', PENDING)
local priority, oldest = '', ''
if pending > 0 then
  local last = tonumber(call('ZRANGE', PENDING, -1, -1, 'WITHSCORES')[2])
  local from, least = 0, nil
  -- One look for each priority that occurs: usually one.
  repeat
    local head = call('ZRANGEBYSCORE', PENDING, int(from), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #head == 0 then break end
    local p = math.floor(head[2] / SPAN)
    local submitted = head[2] - p * SPAN
    if priority == '' then priority = int(p) end
    least = math.min(least or submitted, submitted)
    from = (p + 1) * SPAN
  until last < from
  oldest = int(least)
end
return { pending, call('ZCARD', CLAIMS), call('LLEN', ENDED), priority, oldest }
