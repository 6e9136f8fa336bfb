-- Keeps a setting. KEYS: the settings of a kind. ARGV: name, data, 1 = only if the name is
-- free, how many there may be, the channel to tell on. Answers 0 = kept, 1 = the name is
-- not free, 2 = there are too many.
local there = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
if there and ARGV[3] == '1' then return 1 end
if not there and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 2 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PUBLISH', ARGV[5], '')
return 0
