-- ARGV: id.
-- Answer: 1 the job is open and confirmed, 0 it is in no book, -1 it was not confirmed
-- in time: the machine may be gone for what the book said since.
local machine = call('HGET', HOLDERS, ARGV[1])
if not machine then return 0 end
local book = read(call('HGET', BOOK, machine))
local _, job = find(book.jobs, ARGV[1])
if not job then return find(book.lapsed, ARGV[1]) and -1 or 0 end
if job.by ~= '' or book.heard == '' then
  job.by, book.heard = '', ' 1'
  write(machine, book)
end
return 1
