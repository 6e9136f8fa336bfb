-- ARGV: prefix, number of jobs, ttl [ms], most bytes of the answer, most jobs to look at,
-- how many controllers there are, then each with whether it is here (1 or 0), in the
-- order in which they are asked.
-- Answer: for each job claimed for review: "attempt score id", work, who has approved it.
--
-- Only jobs whose next controller is here are claimed, and those that need nobody any
-- more. The others wait where they are for another replica, or for their time to be up.
local left, expiry, most, looks, n = tonumber(ARGV[2]), int(now + ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local chain, here = {}, {}
for i = 7, 5 + 2 * n, 2 do
  chain[#chain + 1] = ARGV[i]
  here[ARGV[i]] = ARGV[i + 1] == '1'
end
local out, bytes, offset, route = {}, 0, 0, {}
while left > 0 and bytes < most and offset < looks do
  local range, ids = call('ZRANGE', PENDING, offset, offset + 63, 'WITHSCORES'), {}
  if #range == 0 then break end
  for i = 1, #range, 2 do ids[#ids + 1] = range[i] end
  offset = offset + #ids
  local states = call('HMGET', STATE, unpack(ids))
  local jobs = heard() and call('HMGET', JOBS, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local set, words = approved(states[i])
    local name = next_of(chain, set)
    if left > 0 and bytes < most and (not name or here[name]) then
      local work = call('HGET', WORK, id)
      unqueue[#unqueue + 1] = id
      -- A job without content was evicted by a server that is short of memory.
      if work then
        left = left - 1
        local attempt, lost, requeued = 0, '0', '0'
        if states[i] then
          local _, a, _, _, _, _, tail = match(states[i], HEAD)
          attempt = tonumber(a)
          lost, _, requeued = match(tail, TAIL)
        end
        attempt = int(attempt + 1)
        local score = int(tonumber(range[2 * i]))
        local owner = words == '' and '%' or '+' .. words
        local line = 'o ' .. attempt .. ' ' .. NOW .. ' 0 0 % % ' .. lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. owner
        put(id, line, states[i])
        claim[#claim + 1] = expiry
        claim[#claim + 1] = id
        route[#route + 1] = score
        route[#route + 1] = id
        tell(id, line, jobs[i])
        bytes = bytes + #work
        for _, word in ipairs({ attempt .. ' ' .. score .. ' ' .. id, work, since(words) }) do out[#out + 1] = word end
      end
    end
  end
end
if #route > 0 then call('ZADD', ROUTING, unpack(route)) end
flush()
return out
