-- ARGV: prefix, then for each release: id, attempt, lost (1 or 0), the reason as a word,
-- the result if it was lost too often.
-- Answer: for each release 0 done, 1 stale, 2 unknown, 3 done:
-- the job is in quarantine.
local ids, codes = {}, {}
for i = 2, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', STATE, unpack(ids))
local jobs = call('HMGET', JOBS, unpack(ids))
for i, id in ipairs(ids) do
  local at = 5 * i - 3
  local state = latest[id] or states[i]
  if not state then
    codes[i] = jobs[i] and STALE or UNKNOWN
  else
    local letter, attempt = match(state, HEAD)
    if attempt == ARGV[at + 1] and CLAIMED[letter] then
      released(id, state, ARGV[at + 2] == '1', ARGV[at + 4], jobs[i], ARGV[at + 3])
      codes[i] = match(latest[id], '^p') and QUARANTINED or OK
    else
      codes[i] = STALE
    end
  end
end
flush()
return codes
