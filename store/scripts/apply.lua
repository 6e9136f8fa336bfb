-- ARGV: prefix, ttl of finished records [ms], most of them, then for each
-- transition: id, attempt, letter, pool, machine, result.
-- Answer: for each transition 0 done, 1 stale, 2 unknown, or nothing if all are done; the
-- ids forgotten.
local ids, codes, done, told = {}, {}, 0, heard()
for i = 4, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', STATE, unpack(ids))
local jobs = told and call('HMGET', JOBS, unpack(ids)) or {}
for i, id in ipairs(ids) do
  local at = 6 * i - 2
  local attempt, to, result = ARGV[at + 1], ARGV[at + 2], ARGV[at + 5]
  local state = latest[id] or states[i]
  if not state then
    codes[i] = call('HEXISTS', JOBS, id) == 1 and STALE or UNKNOWN
  else
    local letter, current, claimed, started, pool, machine, tail = match(state, HEAD)
    if current ~= attempt then
      codes[i] = STALE
    elseif ACTIVE[letter] then
      local entry = ';' .. to .. STAMP
      if ARGV[at + 3] ~= '%' and ARGV[at + 3] ~= pool then
        pool, machine = ARGV[at + 3], ARGV[at + 4]
        entry = entry .. ',,' .. pool .. ',' .. machine
      elseif ARGV[at + 4] ~= '%' and ARGV[at + 4] ~= machine then
        machine = ARGV[at + 4]
        entry = entry .. ',,,' .. machine
      end
      codes[i] = OK
      if to ~= 'r' then
        ended(id, to, attempt, claimed, started, pool, machine, tail, result, jobs[i], state, entry)
      elseif letter == 'a' then
        keep(id, 'r ' .. attempt .. ' ' .. claimed .. ' ' .. NOW .. ' 0 ' .. pool .. ' ' .. machine .. ' ' .. tail ..
          '\n' .. history_of(state) .. entry)
        tell(id, nil, jobs[i])
      end
    elseif letter == to and result_of(state) == result then
      codes[i] = OK -- the same result once more
    else
      codes[i] = STALE
    end
  end
  if codes[i] == OK then done = done + 1 end
end
flush()
-- More than it may have added, so that what is too much or too old becomes less.
return { done < #ids and codes or {}, forget(tonumber(ARGV[2]), tonumber(ARGV[3]), 2 * #ids) }
