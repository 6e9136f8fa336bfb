-- ARGV: prefix, ttl of finished records [ms], most of them, most claims to reap, the
-- result of a job that was lost too often, the reason for the others as a word, how long
-- a job stays in quarantine [ms], most of them there.
-- Answer: for each expired claim: id, state, job; the ids forgotten.
local out = {}
local ids = call('ZRANGEBYSCORE', CLAIMS, '-inf', NOW, 'LIMIT', 0, ARGV[4])
if #ids > 0 then
  local states = call('HMGET', STATE, unpack(ids))
  local jobs = call('HMGET', JOBS, unpack(ids))
  for i, id in ipairs(ids) do
    if states[i] then
      out[#out + 1] = id
      out[#out + 1] = released(id, states[i], true, ARGV[5], jobs[i], ARGV[6])
      out[#out + 1] = jobs[i] or ''
    else
      unclaim[#unclaim + 1] = id
    end
  end
end
flush()
local forgotten = forget(tonumber(ARGV[2]), tonumber(ARGV[3]), 1024)

-- Out of quarantine goes what nobody has looked after, and the oldest beyond the bound.
local over = call('ZCARD', QUARANTINE) - ARGV[8]
local given_up = over > 0 and call('ZRANGE', QUARANTINE, 0, math.min(over, 512) - 1)
  or call('ZRANGEBYSCORE', QUARANTINE, '-inf', int(now - ARGV[7]), 'LIMIT', 0, 512)
if #given_up > 0 then
  call('ZREM', QUARANTINE, unpack(given_up))
  for _, key in ipairs({ JOBS, STATE, WORK }) do call('HDEL', key, unpack(given_up)) end
  for _, id in ipairs(given_up) do forgotten[#forgotten + 1] = id end
end
return { out, forgotten }
