-- KEYS: zset of classes by the time they were last pushed to [ms], hash of their
-- requirements. ARGV: most classes, then for each class: class, requirement.
-- Answer: for each class 1 if it is known now, 0 if there is no room for it; the time [µs].
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = string.format('%.0f', math.floor(us / 1000))
local room = ARGV[1] - redis.call('ZCARD', KEYS[1])
local out = {}
for i = 2, #ARGV, 2 do
  local known = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if known or room > 0 then
    if not known then room = room - 1 end
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    redis.call('ZADD', KEYS[1], now, ARGV[i])
    out[#out + 1] = 1
  else
    out[#out + 1] = 0
  end
end
return { out, { string.format('%.0f', us) } }
