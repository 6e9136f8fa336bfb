-- ARGV: prefix, id, the reason as a word.
-- Answer: the letter that the job had, empty if it is unknown; and, if it was in
-- quarantine, what has become of it: state, job.
--
-- It goes on as a job that has lost no machine yet, and waits anew from now on.
local id = ARGV[2]
local was, job = call('HGET', STATE, id), call('HGET', JOBS, id)
if not was then return { job and call('ZSCORE', PENDING, id) and 'q' or '' } end
local letter, attempt, _, _, _, _, tail = match(was, HEAD)
if letter ~= 'p' then return { letter } end
local _, score, _, owner = match(tail, TAIL)
local to, line = 'q', queue
if match(owner, '^!') then to, line = 'd', admit else owner = '%' end -- an approval holds
local back = to .. ' ' .. attempt .. ' 0 0 0 % % 0 ' .. score .. ' ' .. NOW .. ' ' .. owner
put(id, back, match(was, '^[^\n]*\n[^\n]*'), entry_of(back, ARGV[3]))
call('ZREM', QUARANTINE, id)
line[1], line[2], woken = score, id, true
tell(id, back, job)
flush()
return { letter, latest[id], job }
