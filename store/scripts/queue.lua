-- What the scripts of a job class share. KEYS: the class's keys, all with one
-- hash tag. ARGV[1]: the prefix of the channels, with a colon on a Cluster.
--
-- pending  zset  id -> priority * SPAN + submission [µs since BASE]: below 2^53, exact
-- claims   zset  id -> when the claim expires [ms]
-- ended    list  when the job ended [ms], blank, id: the latest at the right
-- jobs     hash  id -> content hash (16 hex digits), max attempts, newline, the public part
-- state    hash  id -> see below; a job that was never claimed has none
-- work     hash  id -> the public part, script and env: all that a claim has to read;
--                 gone when the job has ended, unless it is in quarantine
-- clock    the last submission given out [µs since BASE]
-- quarantine  zset  id -> when the job lost its last machine [ms]
-- admitted  zset  id -> as in pending: jobs that every admission controller has approved
-- routing   zset  id -> as in pending: jobs that are claimed for review
--
-- A state is a line "letter attempt claimed started finished pool machine | lost score
-- requeued owner" without the bar, times in ms; a line with its history; and, when the
-- job has ended, the result. Everything up to the machine is the head; the tail changes
-- only on a release. The owner of a pending job is "+" and who has approved it so far,
-- with commas; that of an approved one begins with "!". Names of replicas are escaped.
--
-- A history is "#", how many of its entries were dropped (nothing: none) and the
-- entries ";letter when,attempt,pool,machine,reason" without the blank, when in ms since
-- BASE. What is as in the entry before is empty; commas at the end are left out. The
-- first transition of a job, to pending, is its submission and has no entry: jobs that
-- only wait cost nothing.
local call, match = redis.call, string.match
local CLUSTER, PREFIX = string.sub(ARGV[1], -1) == ':', string.gsub(ARGV[1], ':$', '')
local EVENTS, POKE = PREFIX .. ':events', PREFIX .. ':poke'
local PENDING, CLAIMS, ENDED, JOBS, STATE, WORK, CLOCK, QUARANTINE, ADMITTED, ROUTING = unpack(KEYS)
local SPAN, BASE = 900000000000000, 1735689600000000
local HEAD = '^(%a) (%d+) (%d+) (%d+) %d+ (%S+) (%S+) (%d+ %d+ %d+ %S+)'
local TAIL = '^(%d+) (%d+) (%d+) (%S+)$'
local OK, STALE, UNKNOWN, QUARANTINED = 0, 1, 2, 3
local ACTIVE = { a = true, r = true } -- on a machine
local CLAIMED = { a = true, r = true, o = true } -- or under review

local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

-- Lua's own conversion of numbers keeps 14 digits only.
local function int(x) return string.format('%.0f', x) end

local NOW, STAMP = int(now), int(now - BASE / 1000)

-- KEPT is how many transitions of a job are kept: spillway.MaxTransitions. A history of
-- SHORT bytes can't hold so many.
local KEPT, SHORT = 32, 90

local function never_claimed(score) return 'q 0 0 0 0 % % 0 ' .. score .. ' 0 %' end

-- Changes are collected and written by flush, each kind in one command.
local set, claim, unclaim, queue, unqueue, finish, events = {}, {}, {}, {}, {}, {}, {}
local latest, woken, poison = {}, false, {}
local admit, unadmit, unroute = {}, {}, {}

-- entry_of is the entry of a line that says all by itself.
local function entry_of(line, reason)
  local letter, attempt, _, _, pool, machine = match(line, HEAD)
  return ';' .. letter .. STAMP .. ',' .. attempt .. ',' .. pool .. ',' .. machine .. (reason and ',' .. reason or '')
end

-- trimmed makes room for one entry more in a history. The submission goes first.
local function trimmed(history)
  local dropped, entries = match(history, '^#(%d*)(.*)$')
  local _, n = string.gsub(entries, ';', '')
  if dropped == '' then
    if n + 2 <= KEPT then return history end
    dropped = 0
  end
  while n + 1 > KEPT do
    entries = match(entries, '^;[^;]*(.*)$')
    dropped, n = dropped + 1, n - 1
  end
  return '#' .. int(dropped) .. entries
end

-- history_of is the history of a job, with room for an entry more. was is its state,
-- without a result: false if it was never claimed.
local function history_of(was)
  if not was then return '#' end
  local at = string.find(was, '\n', 1, true)
  local history = at and string.sub(was, at + 1) or '#' .. entry_of(was)
  return #history > SHORT and trimmed(history) or history
end

-- keep writes a whole state.
local function keep(id, state)
  latest[id] = state
  set[#set + 1] = id
  set[#set + 1] = state
end

-- put writes the line that a job is in from now on, and adds to its history. was is as
-- for history_of; without it, it is looked up. Without an entry, it is made from the
-- line. What is done for every job builds its states itself: each string in between
-- costs.
local function put(id, line, was, entry)
  was = latest[id] or was
  if was == nil then was = call('HGET', STATE, id) end
  keep(id, line .. '\n' .. history_of(was) .. (entry or entry_of(line)))
end

-- result_of is the result in the state of a job that has ended.
local function result_of(state)
  return match(state, '^[^\n]*\n#[^\n]*\n(.*)$') or match(state, '^[^\n]*\n(.*)$')
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
  state, job = latest[id] or state, job or ''
  events[#events + 1] = #id .. ':' .. id .. #state .. ':' .. state .. #job .. ':' .. job
end

-- ended makes a job terminal. was and entry are as for put; without an entry, the job is
-- where it was.
local function ended(id, letter, attempt, claimed, started, pool, machine, tail, result, job, was, entry)
  was = latest[id] or was
  if was == nil then was = call('HGET', STATE, id) end
  keep(id, letter .. ' ' .. attempt .. ' ' .. claimed .. ' ' .. started .. ' ' .. NOW .. ' ' .. pool .. ' ' .. machine .. ' ' .. tail ..
    '\n' .. history_of(was) .. (entry or ';' .. letter .. STAMP) .. '\n' .. result)
  if letter == 'p' then poison[#poison + 1] = id else finish[#finish + 1] = id end
  tell(id, nil, job)
  return latest[id]
end

-- released puts a claimed job back at its old place in the queue. When it has lost as
-- many machines as it may, it ends: in quarantine, unless it must never run twice.
local function released(id, state, lost_now, result, job, reason)
  local from, attempt, claimed, started, pool, machine, tail = match(state, HEAD)
  local lost, score, requeued, owner = match(tail, TAIL)
  local to, line = 'q', queue
  if from == 'o' then
    lost_now = false -- it was on no machine
    unroute[#unroute + 1] = id
  elseif match(owner, '^!') then
    to, line = 'd', admit -- nobody has to be asked again
  end
  if lost_now then
    lost, requeued = int(lost + 1), NOW
    local most, once = match(job or '', '^%x+ (%d+)(n?)\n')
    if most and tonumber(lost) >= tonumber(most) then
      tail = lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. owner
      local letter = once == 'n' and 'f' or 'p'
      return ended(id, letter, attempt, claimed, started, pool, machine, tail, result, job, state, ';' .. letter .. STAMP)
    end
  end
  local back = to .. ' ' .. attempt .. ' 0 0 0 % % ' .. lost .. ' ' .. score .. ' ' .. requeued .. ' ' .. owner
  put(id, back, state, entry_of(back, reason))
  unclaim[#unclaim + 1] = id
  line[#line + 1] = score
  line[#line + 1] = id
  woken = true
  tell(id, back, job)
  return latest[id]
end

local function flush()
  if #set > 0 then call('HSET', STATE, unpack(set)) end
  -- GT: who renews for a short time does not cut short what another has extended.
  if #claim > 0 then call('ZADD', CLAIMS, 'GT', unpack(claim)) end
  if #unclaim > 0 then call('ZREM', CLAIMS, unpack(unclaim)) end
  if #queue > 0 then call('ZADD', PENDING, unpack(queue)) end
  if #unqueue > 0 then call('ZREM', PENDING, unpack(unqueue)) end
  if #admit > 0 then call('ZADD', ADMITTED, unpack(admit)) end
  if #unadmit > 0 then call('ZREM', ADMITTED, unpack(unadmit)) end
  if #unroute > 0 then call('ZREM', ROUTING, unpack(unroute)) end
  if #finish > 0 then
    call('ZREM', CLAIMS, unpack(finish))
    call('HDEL', WORK, unpack(finish))
    local entries = {}
    for i, id in ipairs(finish) do entries[i] = NOW .. ' ' .. id end
    call('RPUSH', ENDED, unpack(entries))
  end
  if #poison > 0 then
    call('ZREM', CLAIMS, unpack(poison))
    for _, id in ipairs(poison) do call('ZADD', QUARANTINE, NOW, id) end
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
