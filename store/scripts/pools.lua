-- KEYS: set of the pools in whose books a routed job may be. ARGV: a pool more, until
-- when at least the set is needed [ms].
-- Answer: all of them.
redis.call('SADD', KEYS[1], ARGV[1])
local time = redis.call('TIME')
local rest = ARGV[2] - (time[1] * 1000 + math.floor(time[2] / 1000))
-- A set that was there has a rest of its own: an older begin may last longer.
if rest > redis.call('PTTL', KEYS[1]) then
  redis.call('PEXPIREAT', KEYS[1], ARGV[2])
elseif rest <= 0 then
  redis.call('DEL', KEYS[1])
end
return redis.call('SMEMBERS', KEYS[1])
