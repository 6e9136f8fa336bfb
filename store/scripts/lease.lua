-- KEYS: hash of the lease. ARGV: verb, holder, ttl [ms], epoch (renew, release), how
-- long the epoch is remembered [ms].
-- Answer: 1 if the lease is the holder's now, else 0; epoch as a string; holder; rest [ms].
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local verb, holder, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local old = redis.call('HMGET', KEYS[1], 'holder', 'epoch', 'until')
local epoch, ends = tonumber(old[2] or '0'), tonumber(old[3] or '0')
local live = ends > now

local function int(x) return string.format('%.0f', x) end
local function answer(mine) return { mine, int(epoch), old[1] or '', int(math.max(0, ends - now)) } end
local function keep(new_epoch, new_end)
  epoch, ends = new_epoch, new_end
  redis.call('HSET', KEYS[1], 'holder', holder, 'epoch', int(epoch), 'until', int(ends))
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end

local mine = live and old[1] == holder
if verb == 'acquire' then
  if live and not mine then return answer(0) end
  -- The epoch comes from the clock, so that it grows even when this key was lost.
  keep(mine and epoch or math.max(epoch + 1, now * 1024), now + ttl)
  return answer(1)
end
if not mine or epoch ~= tonumber(ARGV[4]) then return answer(0) end
if verb == 'renew' then keep(epoch, now + ttl) else keep(epoch, 0) end
return answer(1)
