-- KEYS: hash of the pool's memory, list of its ledger. ARGV: verb, epoch, content, how
-- long it is kept [ms], most entries of the ledger.
-- Answer: 1 if it was written, 0 if a newer epoch has written before.
local newest = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if tonumber(ARGV[2]) < newest then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
if ARGV[1] == 'state' then
  redis.call('HSET', KEYS[1], 'state', ARGV[3])
else
  redis.call('LPUSH', KEYS[2], ARGV[3])
  redis.call('LTRIM', KEYS[2], 0, ARGV[5] - 1)
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
