-- ARGV: id, how long a record lives [ms], begun [µs]: only a job that began before
-- then is struck; empty strikes it in any case.
-- Answer: 1 if the job was open.
local machine = call('HGET', HOLDERS, ARGV[1])
if not machine then return 0 end
if ARGV[3] ~= '' then
  local book = read(call('HGET', BOOK, machine))
  local _, job = find(book.jobs, ARGV[1])
  if not job then _, job = find(book.lapsed, ARGV[1]) end
  if job and tonumber(job.begun) >= tonumber(ARGV[3]) then return 0 end
end
return strike(machine, ARGV[1], tonumber(ARGV[2]))
