-- Forgets what a worker was given, unless it is another attempt by now. KEYS: the worker's
-- job. ARGV: id and attempt.
local work = redis.call('HMGET', KEYS[1], 'job', 'attempt')
if work[1] == ARGV[1] and work[2] == ARGV[2] then return redis.call('DEL', KEYS[1]) end
return 0
