-- ARGV: prefix, then the ids.
-- Answer: for each id: state, job; two empty strings if it is unknown.
local ids, out = {}, {}
for i = 2, #ARGV do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', STATE, unpack(ids))
local jobs = call('HMGET', JOBS, unpack(ids))
for i, id in ipairs(ids) do
  local state = states[i]
  if jobs[i] and not state then
    local score = call('ZSCORE', PENDING, id)
    state = score and never_claimed(int(tonumber(score)))
  end
  out[2 * i - 1] = state or ''
  out[2 * i] = state and jobs[i] or ''
end
return out
