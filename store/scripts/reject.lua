-- ARGV: prefix, most jobs, for how long they have waited [µs], letter, result.
-- Answer: for each job ended: id, state, job.
-- A job that lost its machine waits anew from then on.
local limit, before, letter, result = tonumber(ARGV[2]), now_us - BASE - ARGV[3], ARGV[4], ARGV[5]
local before_ms, out, taken = (before + BASE) / 1000, {}, 0

-- reject ends jobs that wait in a queue. gone is where they are noted, to be taken out.
local function reject(from, gone)
  for priority = 0, 9 do
    local offset = 0
    while taken < limit do
      local range = call('ZRANGEBYSCORE', from, int(priority * SPAN), int(priority * SPAN + before),
        'WITHSCORES', 'LIMIT', offset, 128)
      if #range == 0 then break end
      local ids = {}
      for i = 1, #range, 2 do ids[#ids + 1] = range[i] end
      offset = offset + #ids
      local states = call('HMGET', STATE, unpack(ids))
      local jobs = call('HMGET', JOBS, unpack(ids))
      for i, id in ipairs(ids) do
        local state = states[i] or never_claimed(int(tonumber(range[2 * i])))
        local _, attempt, claimed, started, pool, machine, tail = match(state, HEAD)
        local _, _, requeued = match(tail, TAIL)
        if taken < limit and tonumber(requeued) <= before_ms then
          taken = taken + 1
          gone[#gone + 1] = id
          out[#out + 1] = id
          out[#out + 1] = ended(id, letter, attempt, claimed, started, pool, machine, tail, result, jobs[i], states[i])
          out[#out + 1] = jobs[i] or ''
        end
      end
    end
  end
end

reject(PENDING, unqueue)
reject(ADMITTED, unadmit)
flush()
return out
