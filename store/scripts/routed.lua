-- ARGV: how long the mark of the book is good without being read [µs], after what time
-- it is written again [µs], 1 if every job of the pool is booked, else 0.
-- Answer: the time [µs], since when the book has every job [µs], then for each book:
-- machine, book, 1 if the machine's record lives, else 0.
local since, seen, whole = match(call('HGET', BOOK, '') or '', '^(%d+) (%d+) (%d)$')
if not since or now_us - seen > tonumber(ARGV[1]) or whole ~= ARGV[3] then since, seen = int(now_us), 0 end
-- A server that takes no writes can be read all the same: what is not marked is young.
if now_us - seen > tonumber(ARGV[2]) then redis.pcall('HSET', BOOK, '', since .. ' ' .. int(now_us) .. ' ' .. ARGV[3]) end
local live = {}
for _, machine in ipairs(call('ZRANGEBYSCORE', SEEN, '(' .. int(now), '+inf')) do live[machine] = true end
local out, books = { int(now_us), since }, call('HGETALL', BOOK)
for i = 1, #books, 2 do
  if books[i] ~= '' then
    out[#out + 1] = books[i]
    out[#out + 1] = books[i + 1]
    out[#out + 1] = live[books[i]] and 1 or 0
  end
end
return out
