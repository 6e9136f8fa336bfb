-- KEYS: pending, claims, ended, admitted, routing. ARGV: ages [µs].
-- Answer: the numbers of pending, claimed and finished jobs; priority and the
-- submission [µs since BASE] of the oldest job that waits for a machine or for a review
-- as strings, empty for none; the numbers of admitted jobs and of those under review,
-- which are not among the claimed ones; and for each age how many of the pending and
-- the admitted jobs have waited for so long.
-- It stands alone, because all classes are counted at every tick.
local SPAN, BASE = 900000000000000, 1735689600000000 -- as in queue.lua
local PENDING, CLAIMS, ENDED, ADMITTED, ROUTING = unpack(KEYS)
local call = redis.call
local function int(x) return string.format('%.0f', x) end

local pending, admitted, routing = call('ZCARD', PENDING), call('ZCARD', ADMITTED), call('ZCARD', ROUTING)
local urgent, least
local waited, since = {}, {}
if #ARGV > 0 then
  local time = call('TIME')
  for i, age in ipairs(ARGV) do waited[i], since[i] = 0, time[1] * 1000000 + time[2] - BASE - age end
end

-- look finds the most urgent and the oldest job of a queue.
local function look(jobs, counted)
  local last = tonumber(call('ZRANGE', jobs, -1, -1, 'WITHSCORES')[2])
  local from = 0
  -- One look for each priority that occurs: usually one.
  repeat
    local head = call('ZRANGEBYSCORE', jobs, int(from), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #head == 0 then break end
    local p = math.floor(head[2] / SPAN)
    local submitted = head[2] - p * SPAN
    urgent, least = math.min(urgent or p, p), math.min(least or submitted, submitted)
    for i = 1, counted and #since or 0 do
      if since[i] >= submitted then waited[i] = waited[i] + call('ZCOUNT', jobs, int(from), int(p * SPAN + since[i])) end
    end
    from = (p + 1) * SPAN
  until last < from
end

if pending > 0 then look(PENDING, true) end
if admitted > 0 then look(ADMITTED, true) end
if routing > 0 then look(ROUTING) end
return {
  pending, call('ZCARD', CLAIMS) - routing, call('LLEN', ENDED), urgent and int(urgent) or '', least and int(least) or '',
  admitted, routing, waited,
}
