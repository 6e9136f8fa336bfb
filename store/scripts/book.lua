-- What the scripts of a pool's machines share. KEYS: the pool's keys, all with one
-- hash tag.
--
-- machines  hash  machine -> expiry [ms], blank, content
-- seen      zset  machine -> expiry [ms] of its record, its order and its book
-- drains    hash  machine -> order
-- book      hash  machine -> see below; a machine that was never given a job has none.
--                 '' -> "since seen": since when the hash has every job, and when it was
--                 last read, but for an hour. It is in the hash so that who has lost the
--                 one has lost the other.
-- holders   hash  id of a routed job -> the machine in whose book it is
--
-- A book is "uses last", and " 1" once the machine has confirmed a job; then, for each
-- job, a newline and "id begun until", and " by" while it is to be confirmed. Times in
-- µs. A job past its until is not open any more and goes at the next change. One that
-- was not confirmed in time is not open either, if the machine has ever confirmed any;
-- it stays, to be known if it is confirmed after all.
local call, match = redis.call, string.match
local MACHINES, SEEN, DRAINS, BOOK, HOLDERS = unpack(KEYS)

local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

-- Lua's own conversion of numbers keeps 14 digits only.
local function int(x) return string.format('%.0f', x) end

-- read returns a book: the open jobs, those that were not confirmed in time, and the
-- ids of those past their until.
local function read(text)
  local book = { uses = '0', last = '0', heard = '', jobs = {}, lapsed = {}, past = {} }
  if not text then return book end
  book.uses, book.last, book.heard = match(text, '^(%d+) (%d+)( ?1?)')
  for id, begun, ends, by in string.gmatch(text, '\n(%S+) (%d+) (%d+) ?(%d*)') do
    local job = { id = id, begun = begun, ends = ends, by = by }
    if tonumber(ends) <= now_us then
      book.past[#book.past + 1] = id
    elseif by ~= '' and book.heard ~= '' and tonumber(by) <= now_us then
      book.lapsed[#book.lapsed + 1] = job
    else
      book.jobs[#book.jobs + 1] = job
    end
  end
  return book
end

local function find(jobs, id)
  for i, job in ipairs(jobs) do
    if job.id == id then return i, job end
  end
end

-- write keeps a book without what is past. A job is in a book if and only if holders
-- names that machine.
local function write(machine, book)
  local lines = { book.uses .. ' ' .. book.last .. book.heard }
  for _, jobs in ipairs({ book.jobs, book.lapsed }) do
    for _, job in ipairs(jobs) do
      local by = job.by ~= '' and ' ' .. job.by or ''
      lines[#lines + 1] = job.id .. ' ' .. job.begun .. ' ' .. job.ends .. by
    end
  end
  call('HSET', BOOK, machine, table.concat(lines, '\n'))
  if #book.past > 0 then call('HDEL', HOLDERS, unpack(book.past)) end
end

-- used keeps the book of a machine as long as a record that was put now, also if it
-- has no record.
local function used(machine, ttl)
  local expiry = now + ttl
  local score = call('ZSCORE', SEEN, machine)
  if not score or tonumber(score) < expiry then call('ZADD', SEEN, int(expiry), machine) end
end

-- strike takes a job out of a machine's book. It returns 1 if the job was open.
local function strike(machine, id, ttl)
  local book = read(call('HGET', BOOK, machine))
  local i, late = find(book.jobs, id), find(book.lapsed, id)
  if i then
    table.remove(book.jobs, i)
    book.last = int(now_us)
    used(machine, ttl)
  elseif late then
    table.remove(book.lapsed, late)
  end
  call('HDEL', HOLDERS, id)
  write(machine, book)
  return i and 1 or 0
end
