-- KEYS: hash id -> class, zset id -> first push [µs]. ARGV: the age from which on an
-- entry may be replaced [ms], then for each job: id, class, time [µs], the class that
-- the entry may have to be replaced (or an empty string).
-- Answer: for each job the class that is there now, and 1 if it was there before.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local ids, out, set, order, fresh = {}, {}, {}, {}, {}
for i = 2, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', KEYS[1], unpack(ids))
for i, id in ipairs(ids) do
  local at = 4 * i - 2
  local class, old = ARGV[at + 1], fresh[id] or known[i]
  if old and old ~= class and old == ARGV[at + 3] then
    local score = redis.call('ZSCORE', KEYS[2], id)
    if not score or tonumber(score) < us - ARGV[1] * 1000 then old = false end
  end
  if not old then
    fresh[id] = class
    set[#set + 1] = id
    set[#set + 1] = class
    order[#order + 1] = ARGV[at + 2]
    order[#order + 1] = id
  end
  out[2 * i - 1] = old or class
  out[2 * i] = old and 1 or 0
end
if #set > 0 then
  redis.call('HSET', KEYS[1], unpack(set))
  redis.call('ZADD', KEYS[2], unpack(order))
end
return out
