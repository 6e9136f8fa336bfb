-- ARGV: prefix, then for each job: id, job, work, priority.
-- Answer: for each job 1 accepted, 2 duplicate, 3 conflict.
local ids, codes, fresh, jobs, work = {}, {}, {}, {}, {}
for i = 2, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local known = call('HMGET', JOBS, unpack(ids))
local last = tonumber(call('GET', CLOCK) or '0')
for i, id in ipairs(ids) do
  local job, priority = ARGV[4 * i - 1], ARGV[4 * i + 1]
  local old = fresh[id] or known[i]
  if old then
    codes[i] = string.sub(old, 1, 16) == string.sub(job, 1, 16) and 2 or 3
  else
    -- A clock that only grows, so that equal times keep the order of submission.
    last = math.max(last + 1, now_us - BASE)
    local score = int(priority * SPAN + last)
    fresh[id], codes[i] = job, 1
    jobs[#jobs + 1] = id
    jobs[#jobs + 1] = job
    work[#work + 1] = id
    work[#work + 1] = ARGV[4 * i]
    queue[#queue + 1] = score
    queue[#queue + 1] = id
    tell(id, never_claimed(score), job)
  end
end
if #jobs > 0 then
  call('HSET', JOBS, unpack(jobs))
  call('HSET', WORK, unpack(work))
  call('SET', CLOCK, int(last), 'PX', 86400000)
  woken = true
  flush()
end
return codes
