-- ARGV: prefix, ttl [ms], then for each claim: id, attempt.
-- Answer: the positions, from 1, of the claims that are no longer held.
local ids, stale, expiry = {}, {}, int(now + ARGV[2])
for i = 3, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local states = call('HMGET', STATE, unpack(ids))
for i, id in ipairs(ids) do
  local letter, attempt
  if states[i] then letter, attempt = match(states[i], HEAD) end
  if letter and CLAIMED[letter] and attempt == ARGV[2 * i + 2] then
    claim[#claim + 1] = expiry
    claim[#claim + 1] = id
  else
    stale[#stale + 1] = i
  end
end
flush()
return stale
