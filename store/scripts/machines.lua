-- ARGV: ttl [ms], then for each machine: id, content (an empty one removes it, with
-- its order and its book).
-- Drops what has expired, too; the book of a machine that has open jobs stays until
-- the last of them is past. Answer: how many machines there are.
local expiry = int(now + ARGV[1])
local gone = call('ZRANGEBYSCORE', SEEN, '-inf', int(now), 'LIMIT', 0, 512)
local expired = #gone
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

-- close drops a machine's book, unless it must stay.
local function close(machine, text, stays)
  local book, latest = read(text), 0
  for _, job in ipairs(book.jobs) do latest = math.max(latest, tonumber(job.ends)) end
  if stays and latest > 0 then
    call('ZADD', SEEN, int(math.ceil(latest / 1000)), machine)
    return
  end
  for _, jobs in ipairs({ book.jobs, book.lapsed }) do
    for _, job in ipairs(jobs) do book.past[#book.past + 1] = job.id end
  end
  if #book.past > 0 then call('HDEL', HOLDERS, unpack(book.past)) end
  call('HDEL', BOOK, machine)
end

if #gone > 0 then
  local books = call('HMGET', BOOK, unpack(gone))
  call('HDEL', MACHINES, unpack(gone))
  call('ZREM', SEEN, unpack(gone))
  call('HDEL', DRAINS, unpack(gone))
  for i, machine in ipairs(gone) do
    if books[i] then close(machine, books[i], i <= expired) end
  end
end
if #put > 0 then
  call('HSET', MACHINES, unpack(put))
  call('ZADD', SEEN, unpack(seen))
end
return call('HLEN', MACHINES)
