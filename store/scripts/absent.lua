-- ARGV: prefix, most jobs, for how long they have waited [µs], result, most jobs to look
-- at, the controller, then the chain.
-- Answer: for each job failed: id, state, job.
--
-- The jobs that wait for this controller and were submitted, and lost their last machine,
-- so long ago.
local limit, before, result, looks, controller = tonumber(ARGV[2]), now_us - BASE - ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local before_ms, out, taken, chain = (before + BASE) / 1000, {}, 0, {}
for i = 7, #ARGV do chain[#chain + 1] = ARGV[i] end
local offset = 0
while taken < limit and offset < looks do
  local range, ids = call('ZRANGE', PENDING, offset, offset + 127, 'WITHSCORES'), {}
  if #range == 0 then break end
  for i = 1, #range, 2 do ids[#ids + 1] = range[i] end
  offset = offset + #ids
  local states = call('HMGET', STATE, unpack(ids))
  local jobs = call('HMGET', JOBS, unpack(ids))
  for i, id in ipairs(ids) do
    local score = tonumber(range[2 * i])
    local state = states[i] or never_claimed(int(score))
    local _, attempt, claimed, started, pool, machine, tail = match(state, HEAD)
    local _, _, requeued = match(tail, TAIL)
    if taken < limit and score % SPAN <= before and tonumber(requeued) <= before_ms and next_of(chain, (approved(states[i]))) == controller then
      taken = taken + 1
      unqueue[#unqueue + 1] = id
      out[#out + 1] = id
      out[#out + 1] = ended(id, 'f', attempt, claimed, started, pool, machine, tail, result, jobs[i], states[i])
      out[#out + 1] = jobs[i] or ''
    end
  end
end
flush()
return out
