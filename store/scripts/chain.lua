-- approved reads who has approved a job from its state, as a set and as its words.
local function approved(state)
  local set, words = {}, ''
  if state then
    local _, _, _, _, _, _, tail = match(state, HEAD)
    local _, _, _, owner = match(tail, TAIL)
    words = match(owner, '^%+(.*)$') or ''
  end
  for name in string.gmatch(words, '[^,]+') do set[name] = true end
  return set, words
end

-- next_of is the first controller of a chain that is not in a set, nil if there is none.
local function next_of(chain, set)
  for _, name in ipairs(chain) do
    if not set[name] then return name end
  end
end

-- since turns how long ago the next controller was first shown a job ("@name=ms" among
-- those who have approved it) into when that was, as it is kept, and back.
local function since(words)
  return (string.gsub(words, '@([^=,]+)=(%d+)', function(name, ms) return '@' .. name .. '=' .. int(math.max(0, now - ms)) end))
end
