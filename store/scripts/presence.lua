-- KEYS: hash of what replicas say of the controllers connected to them. ARGV: replica,
-- content (an empty one takes it back), ttl [ms].
-- Answer: the time [ms], then for each replica whose word is not too old: replica, when
-- it was said [ms], content.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
end
local all, out, gone = redis.call('HGETALL', KEYS[1]), { string.format('%.0f', now) }, {}
for i = 1, #all, 2 do
  local at, content = string.match(all[i + 1], '^(%d+) (.*)$')
  if at and tonumber(at) > now - ARGV[3] then
    out[#out + 1] = all[i]
    out[#out + 1] = at
    out[#out + 1] = content
  else
    gone[#gone + 1] = all[i]
  end
end
if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return out
