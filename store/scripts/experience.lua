-- KEYS: hash of what was learned, zset of its fields by when they were last written, the
-- number of the last exchange. ARGV: the last exchange that the caller knows, most fields
-- kept, most fields of the answer, how long they are kept without an exchange [ms], then
-- for each thing learned, the latest first: field, content.
-- Answer: the number of this exchange; then each field that others have written since the
-- one that the caller knows, the latest first, and its content.
--
-- What nobody has learned anew for longest goes first.
local call = redis.call
local DATA, ORDER, CLOCK = unpack(KEYS)
local since, most, limit, ttl = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local last = tonumber(call('GET', CLOCK) or '0')
if since > last then since = 0 end -- this store knows less than the caller: it was lost

local fields = call('ZREVRANGEBYSCORE', ORDER, '+inf', '(' .. since, 'LIMIT', 0, limit)
local out = { last + 1 }
if #fields > 0 then
  local contents = call('HMGET', DATA, unpack(fields))
  for i, field in ipairs(fields) do
    if contents[i] then
      out[#out + 1] = field
      out[#out + 1] = contents[i]
    end
  end
end

local put, order = {}, {}
for i = 5, #ARGV, 2 do
  put[#put + 1] = ARGV[i]
  put[#put + 1] = ARGV[i + 1]
  order[#order + 1] = last + 1
  order[#order + 1] = ARGV[i]
end
if #put > 0 then
  call('HSET', DATA, unpack(put))
  call('ZADD', ORDER, unpack(order))
  local over = call('ZCARD', ORDER) - most
  if over > 0 then
    local old = call('ZRANGE', ORDER, 0, over - 1)
    call('ZREMRANGEBYRANK', ORDER, 0, over - 1)
    call('HDEL', DATA, unpack(old))
  end
end
call('SET', CLOCK, last + 1)
for _, key in ipairs(KEYS) do call('PEXPIRE', key, ttl) end
return out
