-- KEYS as in touch.lua. ARGV: class, the time that was seen.
-- Drops a class unless somebody has pushed to it since. Answer: 1 if it is gone.
local seen = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not seen or tonumber(seen) ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
