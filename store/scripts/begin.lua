-- ARGV: machine, id, begun [µs], until [µs], how long a record lives [ms], most open
-- jobs of a machine, how long the machine has to confirm the job [µs] (0 = it need not).
-- Answer: 1 the job is in the machine's book, 0 the machine is under an order, -1 the
-- until is past, -2 the book is full.
--
-- The order is looked at and the job is booked in one go: whoever reads the book after
-- an order was written sees every job that was begun before it.
local machine, id, ends, ttl = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[5])
local most, within = tonumber(ARGV[6]), tonumber(ARGV[7])
local by = within > 0 and int(now_us + within) or ''
if tonumber(ends) <= now_us then return -1 end
local book = read(call('HGET', BOOK, machine))
local _, job = find(book.jobs, id)
if job then
  -- Once more: the answer was lost. It began before the order, if there is one now.
  if tonumber(job.ends) < tonumber(ends) then job.ends = ends end
  if job.by ~= '' then job.by = by end
  write(machine, book)
  return 1
end
if call('HEXISTS', DRAINS, machine) == 1 then return 0 end
local score = call('ZSCORE', SEEN, machine)
-- Nothing tidies up while a pool's machines don't change.
if #book.jobs == 0 and not (score and tonumber(score) > now) then
  book.uses, book.heard = '0', ''
  for _, old in ipairs(book.lapsed) do book.past[#book.past + 1] = old.id end
  book.lapsed = {}
end
if #book.jobs >= most then return -2 end
local late = find(book.lapsed, id)
if late then table.remove(book.lapsed, late) end
if #book.jobs + #book.lapsed >= most then book.past[#book.past + 1] = table.remove(book.lapsed, 1).id end
local holder = call('HGET', HOLDERS, id)
if holder and holder ~= machine then strike(holder, id, ttl) end
book.jobs[#book.jobs + 1] = { id = id, begun = ARGV[3], ends = ends, by = by }
book.uses, book.last = int(book.uses + 1), int(now_us)
write(machine, book)
call('HSET', HOLDERS, id, machine)
used(machine, ttl)
return 1
