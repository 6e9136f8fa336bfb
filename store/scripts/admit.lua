-- ARGV: prefix, then for each decision: id, attempt, letter (d admitted, q back to the
-- queue, x rejected, f failed), who has approved (and perhaps "@" and who was asked how
-- long ago, see chain.lua), the result of an end, why as a word.
-- Answer: for each decision 0 done, 1 stale, 2 unknown.
local ids, codes = {}, {}
for i = 2, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', STATE, unpack(ids))
local jobs = call('HMGET', JOBS, unpack(ids))
for i, id in ipairs(ids) do
  local at = 6 * i - 4
  local to, words, result, why = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local state = latest[id] or states[i]
  local letter, attempt, claimed, started, pool, machine, tail
  if state then letter, attempt, claimed, started, pool, machine, tail = match(state, HEAD) end
  if not state then
    codes[i] = jobs[i] and STALE or UNKNOWN
  elseif attempt ~= ARGV[at + 1] then
    codes[i] = STALE
  elseif letter == 'o' then
    codes[i] = OK
    unroute[#unroute + 1] = id
    if to == 'x' or to == 'f' then
      ended(id, to, attempt, claimed, started, pool, machine, tail, result, jobs[i], state, ';' .. to .. STAMP)
    else
      local lost, score, requeued = match(tail, TAIL)
      local line, owner = admit, '!'
      if to == 'q' then
        line, owner = queue, words == '' and '%' or '+' .. since(words)
      end
      local back = to .. ' ' .. attempt .. ' 0 0 0 % % ' .. lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. owner
      put(id, back, state, ';' .. to .. STAMP .. (why ~= '' and ',,,,' .. why or ''))
      line[#line + 1] = score
      line[#line + 1] = id
      unclaim[#unclaim + 1] = id
      woken = true
      tell(id, back, jobs[i])
    end
  elseif letter == to and to ~= 'q' and (to == 'd' or result_of(state) == result) then
    codes[i] = OK -- the same decision once more: its answer was lost
  else
    codes[i] = STALE
  end
end
flush()
return codes
