-- ARGV: prefix, the result, then the ids.
-- Answer: for each id its letter after the call, or an empty string.
--
-- Those that somebody had claimed are told to every replica at once: one of them has
-- the machine that has to stop.
local ids, out, result, stop = {}, {}, ARGV[2], {}
for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', STATE, unpack(ids))
local jobs = call('HMGET', JOBS, unpack(ids))
for i, id in ipairs(ids) do
  local state = latest[id] or states[i]
  if jobs[i] and not state then
    local score = call('ZSCORE', PENDING, id)
    state = score and never_claimed(int(tonumber(score)))
  end
  if not state then
    out[i] = ''
  else
    local letter, attempt, claimed, started, pool, machine, tail = match(state, HEAD)
    if letter == 'q' then unqueue[#unqueue + 1] = id end
    if letter == 'd' then unadmit[#unadmit + 1] = id end
    if letter == 'o' then unroute[#unroute + 1] = id end
    if CLAIMED[letter] then stop[#stop + 1] = id end
    if letter == 'q' or letter == 'd' or CLAIMED[letter] then
      letter = 'k'
      ended(id, letter, attempt, claimed, started, pool, machine, tail, result, jobs[i], states[i], ';k' .. STAMP)
    end
    out[i] = letter
  end
end
flush()
if #stop > 0 then call('PUBLISH', PREFIX .. ':canceled', table.concat(stop, '\n')) end
return out
