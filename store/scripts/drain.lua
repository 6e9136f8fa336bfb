-- KEYS: hash of drain orders. ARGV: channel, ttl [ms], then for each order: machine,
-- content (an empty one takes the order back). A content is a JSON object with at
-- least one field; the time since when the order stands [µs] is put before it.
local time = redis.call('TIME')
local now_us = string.format('%.0f', time[1] * 1000000 + time[2])
local names = {}
for i = 3, #ARGV, 2 do names[#names + 1] = ARGV[i] end
local standing = redis.call('HMGET', KEYS[1], unpack(names))
local put, off = {}, {}
for i, name in ipairs(names) do
  local content = ARGV[2 * i + 2]
  if content == '' then
    off[#off + 1] = name
  else
    local at = standing[i] and string.match(standing[i], '^{"at":(%d+)') or now_us
    put[#put + 1] = name
    put[#put + 1] = '{"at":' .. at .. ',' .. string.sub(content, 2)
  end
end
if #off > 0 then redis.call('HDEL', KEYS[1], unpack(off)) end
if #put > 0 then
  redis.call('HSET', KEYS[1], unpack(put))
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('PUBLISH', ARGV[1], '')
return 1
