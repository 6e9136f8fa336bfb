-- ARGV: prefix, number of jobs, ttl [ms], owner, pool, most bytes of the answer, 1 if only
-- jobs may be taken that every admission controller has approved.
-- Answer: for each job claimed: "attempt score id", work.
local left, expiry, owner, pool, most = tonumber(ARGV[2]), int(now + ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
local claimed = ' ' .. NOW .. ' 0 0 ' .. pool .. ' % '
local out, bytes, told = {}, 0, heard()
local find = string.find

-- take claims the first jobs of a queue. mark is what their owner begins with.
local function take(from, mark)
  while left > 0 and bytes < most do
    local first, ids = call('ZRANGE', from, 0, math.min(left, 64) - 1, 'WITHSCORES'), {}
    if #first == 0 then break end
    for i = 1, #first / 2 do ids[i] = first[2 * i - 1] end
    -- A range is taken out at once, a third faster than ZPOPMIN does it.
    call('ZREMRANGEBYRANK', from, 0, #ids - 1)
    left = left - #ids
    local states = call('HMGET', STATE, unpack(ids))
    local jobs = told and call('HMGET', JOBS, unpack(ids))
    local work = call('HMGET', WORK, unpack(ids))
    for i, id in ipairs(ids) do
      -- A job without content was evicted by a server that is short of memory.
      local content = work[i]
      if content then
        local attempt, lost, requeued, history = '1', '0', '0', '#'
        local was, score = states[i], first[2 * i]
        if was then
          local _, a, _, _, _, _, tail = match(was, HEAD)
          attempt = int(a + 1)
          lost, _, requeued = match(tail, TAIL)
          history = history_of(was)
        end
        if find(score, '%D') then score = int(tonumber(score)) end -- as servers may write it
        local n = #set
        set[n + 1] = id
        set[n + 2] = 'a ' .. attempt .. claimed .. lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. mark .. owner ..
          '\n' .. history .. ';a' .. STAMP .. ',' .. attempt .. ',' .. pool
        claim[n + 1], claim[n + 2] = expiry, id
        if told then tell(id, set[n + 2], jobs[i]) end
        bytes = bytes + #content
        out[n + 1], out[n + 2] = attempt .. ' ' .. score .. ' ' .. id, content
      end
    end
  end
end

-- The approved ones first, also of a class that needs no approval any more.
take(ADMITTED, '!')
if ARGV[7] ~= '1' then take(PENDING, '') end
flush()
return out
