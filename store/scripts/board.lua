-- KEYS: the newest epoch, the board. ARGV: epoch, data, how long it is shown [ms], how
-- long the epoch is remembered [ms].
-- Answer: 1 if it was written, 0 if a newer epoch has written before.
local newest = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < newest then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
