-- KEYS: hash of drain orders. ARGV: channel, ttl [ms], then for each order: machine,
-- content (an empty one takes the order back).
local put, off = {}, {}
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    off[#off + 1] = ARGV[i]
  else
    put[#put + 1] = ARGV[i]
    put[#put + 1] = ARGV[i + 1]
  end
end
if #off > 0 then redis.call('HDEL', KEYS[1], unpack(off)) end
if #put > 0 then
  redis.call('HSET', KEYS[1], unpack(put))
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('PUBLISH', ARGV[1], '')
return 1
