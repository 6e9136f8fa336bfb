-- ARGV: machine, id, begun [µs], until [µs], how long a record lives [ms], most open
-- jobs of a machine.
-- Answer: 1 the job is in the machine's book, 0 the machine is under an order, -1 the
-- until is past, -2 the book is full.
--
-- The order is looked at and the job is booked in one go: whoever reads the book after
-- an order was written sees every job that was begun before it.
local machine, id, ends, ttl = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[5])
if tonumber(ends) <= now_us then return -1 end
local book = read(call('HGET', BOOK, machine))
local _, job = find(book, id)
if job then
  -- Once more: the answer was lost. It began before the order, if there is one now.
  if tonumber(job.ends) < tonumber(ends) then job.ends = ends end
  write(machine, book)
  return 1
end
if call('HEXISTS', DRAINS, machine) == 1 then return 0 end
local score = call('ZSCORE', SEEN, machine)
-- Nothing tidies up while a pool's machines don't change.
if #book.jobs == 0 and not (score and tonumber(score) > now) then book.uses = '0' end
if #book.jobs >= tonumber(ARGV[6]) then return -2 end
local holder = call('HGET', HOLDERS, id)
if holder and holder ~= machine then strike(holder, id, ttl) end
book.jobs[#book.jobs + 1] = { id = id, begun = ARGV[3], ends = ends }
book.uses, book.last = int(book.uses + 1), int(now_us)
write(machine, book)
call('HSET', HOLDERS, id, machine)
used(machine, ttl)
return 1
