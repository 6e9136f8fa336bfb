-- ARGV: prefix, ttl of finished records [ms], most of them, most claims to reap, the
-- result of a job that was lost too often.
-- Answer: for each expired claim: id, state, job; the ids forgotten.
local out = {}
local ids = call('ZRANGEBYSCORE', CLAIMS, '-inf', NOW, 'LIMIT', 0, ARGV[4])
if #ids > 0 then
  local states = call('HMGET', STATE, unpack(ids))
  local jobs = call('HMGET', JOBS, unpack(ids))
  for i, id in ipairs(ids) do
    if states[i] then
      out[#out + 1] = id
      out[#out + 1] = released(id, states[i], true, ARGV[5], jobs[i])
      out[#out + 1] = jobs[i] or ''
    else
      unclaim[#unclaim + 1] = id
    end
  end
end
flush()
return { out, forget(tonumber(ARGV[2]), tonumber(ARGV[3]), 1024) }
