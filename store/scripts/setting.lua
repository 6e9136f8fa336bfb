-- Keeps a setting. KEYS: the settings of a kind. ARGV: name, data, when (0 = always, 1 =
-- only if the name is free, 2 = only if it is what it was), how many there may be, the
-- channel to tell on, what it was. Answers 0 = kept, 1 = the name is not free, or it is
-- not what it was, 2 = there are too many.
local there = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[3] == '1' and there then return 1 end
if ARGV[3] == '2' and there ~= ARGV[6] then return 1 end
if not there and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 2 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PUBLISH', ARGV[5], '')
return 0
