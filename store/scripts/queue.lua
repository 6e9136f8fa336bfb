-- What the scripts of a job class share. KEYS: the class's keys, all with one
-- hash tag. ARGV[1]: the prefix of the channels, with a colon on a Cluster.
--
-- pending  zset  id -> priority * SPAN + submission [µs since BASE]: below 2^53, exact
-- claims   zset  id -> when the claim expires [ms]
-- ended    list  when the job ended [ms], blank, id: the latest at the right
-- jobs     hash  id -> content hash (16 hex digits), max attempts, newline, the public part
-- state    hash  id -> see below; a job that was never claimed has none
-- work     hash  id -> the public part, script and env: all that a claim has to read;
--                 gone when the job has ended
-- clock    the last submission given out [µs since BASE]
--
-- A state is "letter attempt claimed started finished pool machine | lost score
-- requeued owner" without the bar, times in ms, and after a newline the result.
-- Everything up to the machine is the head; the tail changes only on a release.
local call, match = redis.call, string.match
local CLUSTER, PREFIX = string.sub(ARGV[1], -1) == ':', string.gsub(ARGV[1], ':$', '')
local EVENTS, POKE = PREFIX .. ':events', PREFIX .. ':poke'
local PENDING, CLAIMS, ENDED, JOBS, STATE, WORK, CLOCK = unpack(KEYS)
local SPAN, BASE = 900000000000000, 1735689600000000
local HEAD = '^(%a) (%d+) (%d+) (%d+) %d+ (%S+) (%S+) (.*)$'
local TAIL = '^(%d+) (%d+) (%d+) (%S+)$'
local OK, STALE, UNKNOWN = 0, 1, 2
local ACTIVE = { a = true, r = true }

local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

-- Lua's own conversion of numbers keeps 14 digits only.
local function int(x) return string.format('%.0f', x) end

local NOW = int(now)

local function never_claimed(score) return 'q 0 0 0 0 % % 0 ' .. score .. ' 0 %' end

-- Changes are collected and written by flush, each kind in one command.
local set, claim, unclaim, queue, unqueue, finish, events = {}, {}, {}, {}, {}, {}, {}
local latest, woken = {}, false

local function put(id, state)
  latest[id] = state
  set[#set + 1] = id
  set[#set + 1] = state
end

-- Telling costs as much as the change itself: only if somebody listens. The servers
-- of a Cluster know their own listeners only; ARGV[1] ends in a colon there.
local listeners
local function heard()
  if listeners == nil then
    listeners = CLUSTER or call('PUBSUB', 'NUMSUB', EVENTS)[2] > 0
  end
  return listeners
end

local function tell(id, state, job)
  if not heard() then return end
  job = job or ''
  events[#events + 1] = #id .. ':' .. id .. #state .. ':' .. state .. #job .. ':' .. job
end

-- ended makes a job terminal.
local function ended(id, letter, attempt, claimed, started, pool, machine, tail, result, job)
  local state = letter .. ' ' .. attempt .. ' ' .. claimed .. ' ' .. started .. ' ' .. NOW ..
    ' ' .. pool .. ' ' .. machine .. ' ' .. tail .. '\n' .. result
  put(id, state)
  finish[#finish + 1] = id
  tell(id, state, job)
  return state
end

-- released puts a claimed job back at its old place in the queue, or ends it when
-- it has lost as many machines as it may.
local function released(id, state, lost_now, result, job)
  local _, attempt, claimed, started, pool, machine, tail = match(state, HEAD)
  local lost, score, requeued, owner = match(tail, TAIL)
  if lost_now then
    lost, requeued = int(lost + 1), NOW
    local most = job and match(job, '^%x+ (%d+)\n')
    if most and tonumber(lost) >= tonumber(most) then
      tail = lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. owner
      return ended(id, 'f', attempt, claimed, started, pool, machine, tail, result, job)
    end
  end
  local back = 'q ' .. attempt .. ' 0 0 0 % % ' .. lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. owner
  put(id, back)
  unclaim[#unclaim + 1] = id
  queue[#queue + 1] = score
  queue[#queue + 1] = id
  woken = true
  tell(id, back, job)
  return back
end

local function flush()
  if #set > 0 then call('HSET', STATE, unpack(set)) end
  if #claim > 0 then call('ZADD', CLAIMS, unpack(claim)) end
  if #unclaim > 0 then call('ZREM', CLAIMS, unpack(unclaim)) end
  if #queue > 0 then call('ZADD', PENDING, unpack(queue)) end
  if #unqueue > 0 then call('ZREM', PENDING, unpack(unqueue)) end
  if #finish > 0 then
    call('ZREM', CLAIMS, unpack(finish))
    call('HDEL', WORK, unpack(finish))
    local entries = {}
    for i, id in ipairs(finish) do entries[i] = NOW .. ' ' .. id end
    call('RPUSH', ENDED, unpack(entries))
  end
  if #events > 0 then call('PUBLISH', EVENTS, table.concat(events)) end
  if woken then call('PUBLISH', POKE, '') end
end

-- forget drops records that ended more than ttl ms ago or are more than most, at
-- most limit of them, and returns their ids.
local function forget(ttl, most, limit)
  local over = call('LLEN', ENDED) - most
  local first = call('LINDEX', ENDED, 0)
  local function old(at) return tonumber(at) <= now - ttl end
  if over <= 0 and not (first and old(match(first, '^%d+'))) then return {} end
  local ids = {}
  for i, entry in ipairs(call('LRANGE', ENDED, 0, limit - 1)) do
    local at, id = match(entry, '^(%d+) (.*)$')
    if i > over and not old(at) then break end
    ids[i] = id
  end
  call('LTRIM', ENDED, #ids, -1)
  call('HDEL', JOBS, unpack(ids))
  call('HDEL', STATE, unpack(ids))
  return ids
end
