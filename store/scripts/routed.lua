-- Answer: the time [µs], then for each book: machine, book, 1 if the machine's record
-- lives, else 0.
local live = {}
for _, machine in ipairs(call('ZRANGEBYSCORE', SEEN, '(' .. int(now), '+inf')) do live[machine] = true end
local out, books = { int(now_us) }, call('HGETALL', BOOK)
for i = 1, #books, 2 do
  out[#out + 1] = books[i]
  out[#out + 1] = books[i + 1]
  out[#out + 1] = live[books[i]] and 1 or 0
end
return out
