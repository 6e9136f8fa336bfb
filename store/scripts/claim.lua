-- ARGV: prefix, number of jobs, ttl [ms], owner, pool, most bytes of the answer.
-- Answer: for each job claimed: id, state, job, work.
local left, expiry, owner, pool, most = tonumber(ARGV[2]), int(now + ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
local out, bytes = {}, 0
while left > 0 and bytes < most do
  local first, ids, scores = call('ZRANGE', PENDING, 0, math.min(left, 64) - 1, 'WITHSCORES'), {}, {}
  if #first == 0 then break end
  for i = 1, #first / 2 do
    ids[i] = first[2 * i - 1]
    scores[i] = first[2 * i]
  end
  -- A range is taken out at once, a third faster than ZPOPMIN does it.
  call('ZREMRANGEBYRANK', PENDING, 0, #ids - 1)
  left = left - #ids
  local states = call('HMGET', STATE, unpack(ids))
  local jobs = call('HMGET', JOBS, unpack(ids))
  local work = call('HMGET', WORK, unpack(ids))
  for i, id in ipairs(ids) do
    -- A job without content was evicted by a server that is short of memory.
    if jobs[i] and work[i] then
      local attempt, lost, requeued = 0, '0', '0'
      if states[i] then
        local _, a, _, _, _, _, tail = match(states[i], HEAD)
        attempt = tonumber(a)
        lost, _, requeued = match(tail, TAIL)
      end
      local state = 'a ' .. int(attempt + 1) .. ' ' .. NOW .. ' 0 0 ' .. pool .. ' % ' .. lost .. ' ' ..
        int(tonumber(scores[i])) .. ' ' .. requeued .. ' ' .. owner
      put(id, state)
      claim[#claim + 1] = expiry
      claim[#claim + 1] = id
      tell(id, state, jobs[i])
      bytes = bytes + #jobs[i] + #work[i]
      local n = #out
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = id, state, jobs[i], work[i]
    end
  end
end
flush()
return out
