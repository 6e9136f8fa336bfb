-- KEYS: zset of a pool's seats: machine -> until when it has one [ms]. ARGV: how many there
-- are (0 = as many as are asked for), for how long [ms], the machines.
-- Answer: for each machine 1 if it has a seat now, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local function int(x) return string.format('%.0f', x) end

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
local taken, out = redis.call('ZCARD', KEYS[1]), {}
for i = 3, #ARGV do
  local has = redis.call('ZSCORE', KEYS[1], ARGV[i])
  out[i - 2] = 0
  if has or most == 0 or taken < most then
    if not has then taken = taken + 1 end
    out[i - 2] = 1
    -- GT: who renews for a short time does not cut short what another has taken.
    redis.call('ZADD', KEYS[1], 'GT', int(now + ttl), ARGV[i])
  end
end
-- All go when the last one does.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
if last[2] then redis.call('PEXPIREAT', KEYS[1], int(tonumber(last[2]))) end
return out
