-- KEYS: hash machine -> expiry [ms], blank, content; zset machine -> expiry [ms];
-- hash of drain orders. ARGV: ttl [ms], then for each machine: id, content (an empty
-- one removes it).
-- Drops what has expired, too. Answer: how many machines there are.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = string.format('%.0f', now + ARGV[1])
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 512)
local put, seen = {}, {}
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    gone[#gone + 1] = ARGV[i]
  else
    put[#put + 1] = ARGV[i]
    put[#put + 1] = expiry .. ' ' .. ARGV[i + 1]
    seen[#seen + 1] = expiry
    seen[#seen + 1] = ARGV[i]
  end
end
if #gone > 0 then
  redis.call('HDEL', KEYS[1], unpack(gone))
  redis.call('ZREM', KEYS[2], unpack(gone))
  redis.call('HDEL', KEYS[3], unpack(gone))
end
if #put > 0 then
  redis.call('HSET', KEYS[1], unpack(put))
  redis.call('ZADD', KEYS[2], unpack(seen))
end
return redis.call('HLEN', KEYS[1])
