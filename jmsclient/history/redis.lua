-- The transitions of jmsclient/history/entries.py for a group of commands, in one atomic call; the same tests hold both.
--
-- KEYS: the set of triggers with parked messages; the mark; then for each trigger of the group the index of its parked messages (a
--   sorted set by time, in which the time of a decided one is negative); then the entries, one hash each.
-- ARGV: the number of triggers; the server's run id; 1 to write in any case, so that a WAIT after this covers what was read; then
--   what commands have in common: the number of settings, then for each how many arguments it has, its verb, which trigger,
--   history_ttl in ms, and what follows; then for each command, in the order of its entry, which setting, and its token.
--   claim: lease, take_over, owner, body hash, decided, 1 where a lost store is no hindrance    complete: outcome
--   release: state or '', lease, reason    renew: lease    park: reason, delivery count, owner, envelope    decide: decision, by
--   join: what the lines of its place begin with, its line, how many are needed, how long it waits for them, its frame
--   Leases are microseconds from now, '' for none given. What may be absent is '' for absent, else '=' and the value.
-- Answers: {the server's time in microseconds, 1 for a missing mark and 2 for a changed one}, then for each command {done, lease
--   lost, fencing token, attempt, token, entry} and for a claim 1 where the store is cautious.
--
-- The mark (TR-53), a hash without time to live: r the run id, l when something was lost, c written for a WAIT. A claim is cautious
--   for its history_ttl after that.
--
-- Fields of an entry: s state, t token, f fencing token, l lease until, a attempt, c created (started), u updated, o outcome,
--   r reason, w who (owner), h body hash, n copies, v version, y left by; b and such a letter: what a claim was made over;
--   e envelope, d delivery count, p parked at; k decision, q who decided, z when. Times in microseconds of this server. No l:
--   locked as long as the key lives. The time to live of the key is the history_ttl; one with an envelope has none.

local VERSION = '1'
local FIELDS = {'s', 't', 'f', 'l', 'a', 'c', 'u', 'o', 'r', 'w', 'h', 'n', 'v', 'y', 'bs', 'k', 'q', 'z', 'p'}
local OLD = {'s', 't', 'f', 'l', 'a', 'c', 'u', 'r', 'w', 'h', 'n', 'k', 'q', 'z'}
local OLD_FIELDS = {}
for i, name in ipairs(OLD) do OLD_FIELDS[i] = 'b' .. name end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function text(number) return string.format('%.0f', number) end

local NOW = text(now)
local RUN = ARGV[2]
local cursor = 3

-- What has no mark, or the mark of another run, may have lost what it knew.
local mark = redis.call('HMGET', KEYS[2], 'r', 'l')
local lost_at = tonumber(mark[2] or '')
local found = (not lost_at and 1) or (mark[1] ~= RUN and 2) or 0
if found > 0 then
  redis.call('HSET', KEYS[2], 'r', RUN, 'l', NOW)
  lost_at = now
elseif ARGV[3] == '1' then
  redis.call('HSET', KEYS[2], 'c', NOW)
end

local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function optional(value)
  if value == '' then return false end
  return string.sub(value, 2)
end

local lease_fields = {['']=''}  -- a group's leases are mostly one

local function lease_field(lease)
  local field = lease_fields[lease]
  if not field then
    field = text(now + tonumber(lease))
    lease_fields[lease] = field
  end
  return field
end

-- The key lives for the history_ttl; for the sake of an envelope, until it is completed (p: parked at).
local function live(key, entry, ttl)
  if entry and entry.p then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, ttl) end
end

local function locked_until(key, lease)
  local number = tonumber(lease or '')
  if number then return number end
  local left = redis.call('PTTL', key)
  if left < 0 then return 2 ^ 53 end
  return now + left * 1000
end

-- An entry as it is kept, or nil. What is no entry of ours counts as one of an unknown version: it is never overwritten.
local function load(key)
  local values = redis.pcall('HMGET', key, unpack(FIELDS))
  if values.err then return {s = 'unknown', v = '0', locked = 0} end
  if not values[1] then return nil end
  local entry = {}
  for i, name in ipairs(FIELDS) do entry[name] = values[i] end
  entry.locked = locked_until(key, entry.l)
  return entry
end

-- What a completion asks of its own entry: less to read, for it is done once a message.
local OWN = {'s', 't', 'f', 'a', 'v', 'bs', 'p'}
local function load_own(key)
  local values = redis.pcall('HMGET', key, unpack(OWN))
  if values.err then return {s = 'unknown', v = '0', locked = 0} end
  if not values[1] then return nil end
  return {s = values[1], t = values[2], f = values[3], a = values[4], v = values[5], bs = values[6], p = values[7]}
end

local function seen(entry)
  if not entry then return false end
  return {entry.s, entry.t or '', entry.f or '0', text(entry.locked), entry.a or '1', entry.c or NOW, entry.u or NOW,
    entry.o or false, entry.r or false, entry.w or false, entry.h or false, entry.n or '0', entry.v or '0',
    entry.k or false, entry.q or false, entry.z or NOW}
end

local function before_of(key, entry)
  if not entry.bs then return nil end
  local values = redis.call('HMGET', key, unpack(OLD_FIELDS))
  local old = {v = VERSION}
  for i, name in ipairs(OLD) do old[name] = values[i] end
  old.locked = locked_until(key, old.l)
  return old
end

local function fence(entry)
  local last = entry and tonumber(entry.f)
  return last and last >= now and text(last + 1) or NOW
end

local function put(fields, name, value)
  if value then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end

local function begun(token, entry, attempt, lease)
  return {'s', 'processing', 't', token, 'f', fence(entry), 'l', lease, 'a', attempt, 'c', NOW, 'u', NOW, 'v', VERSION}
end

-- Written anew where the entry was absent: evicted, expired, lost.
-- A lease not given lasts as long as the key; one that is kept for its envelope would be locked for ever.
local function lease_of(entry, given, ttl)
  if given == '' and entry and entry.p then return text(now + tonumber(ttl) * 1000) end
  return lease_field(given)
end

-- All of an entry but its envelope.
local function clear(key, entry)
  if not entry.p then return redis.call('DEL', key) end
  for _, name in ipairs(FIELDS) do
    if name ~= 'p' then redis.call('HDEL', key, name) end
  end
  redis.call('HDEL', key, unpack(OLD_FIELDS))
end

local function ensure(key, entry, token)
  if not entry then redis.call('HSET', key, unpack(begun(token, nil, '1', NOW))) end
  return entry or {f = NOW, a = '1', t = token}
end

local function settle_claim(key, entry)
  if entry.bs then redis.call('HDEL', key, unpack(OLD_FIELDS)) end
end

local function unlist(key, index)
  redis.call('HDEL', key, 'e', 'd', 'p')
  redis.call('ZREM', index, key)
  if redis.call('EXISTS', index) == 0 then redis.call('SREM', KEYS[1], index) end
end

local function foreign(entry, token)
  return entry and (entry.t ~= token or entry.v ~= VERSION)
end

local function owned(entry, before)
  return {1, 0, tonumber(entry.f), tonumber(entry.a), entry.t, before}
end

local function refused(entry, lost)
  return {0, lost and 1 or 0, 0, 1, '', seen(entry)}
end

local verbs = {}

local function claimed(answer, cautious)
  answer[7] = cautious and 1 or 0
  return answer
end

local function may_claim(entry, token, take_over, hash, decided, deterred)
  if not entry then return not deterred and not decided end
  if entry.v ~= VERSION or (hash and entry.h and entry.h ~= hash) then return false end
  if entry.s == 'retrying' then return entry.locked <= now or entry.t == token end
  if entry.s == 'in_doubt' then return decided and entry.k == 'new' end
  return take_over and entry.s == 'processing' and entry.locked <= now
end

function verbs.claim(key, index, token, ttl)
  local given, take_over, owner, hash, decided = take(), take() == '1', optional(take()), optional(take()), take() == '1'
  local undeterred = take() == '1'
  local cautious = now < lost_at + tonumber(ttl) * 1000
  local entry = redis.call('EXISTS', key) == 1 and load(key) or nil
  local lease = lease_of(entry, given, ttl)
  if entry and entry.v == VERSION and entry.s == 'processing' and entry.t == token then
    local answer = owned(entry, seen(before_of(key, entry)))
    redis.call('HSET', key, 'l', lease, 'u', NOW)
    live(key, entry, ttl)
    return claimed(answer, cautious)
  end
  if not may_claim(entry, token, take_over, hash, decided, cautious and not undeterred) then
    return claimed(refused(entry), cautious)
  end
  local attempt = entry and tonumber(entry.a) + 1 or 1
  local fields = begun(token, entry, attempt, lease)
  put(fields, 'w', owner)
  put(fields, 'h', hash or (entry and entry.h))
  if entry then
    for _, name in ipairs(OLD) do put(fields, 'b' .. name, entry[name]) end
    for _, name in ipairs({'k', 'q', 'z'}) do put(fields, name, entry[name]) end
    clear(key, entry)
  end
  redis.call('HSET', key, unpack(fields))
  live(key, entry, ttl)
  return claimed({1, 0, tonumber(fields[6]), attempt, token, seen(entry)}, cautious)
end

function verbs.complete(key, index, token, ttl)
  local outcome = take()
  local entry = load_own(key)
  if foreign(entry, token) then return refused(load(key), true) end
  if entry and (entry.s == 'completed' or entry.s == 'joined') then return owned(entry, false) end
  local kept = ensure(key, entry, token)
  redis.call('HSET', key, 's', outcome == 'joined' and 'joined' or 'completed', 'o', outcome, 'l', NOW, 'u', NOW)
  settle_claim(key, kept)
  if kept.p then unlist(key, index) end
  redis.call('PEXPIRE', key, ttl)
  return owned(kept, false)
end

local function undo(key, entry, token, ttl)
  local before = seen(entry)
  local old = entry and before_of(key, entry)
  if entry then clear(key, entry) end
  if old then
    local fields = {'v', VERSION, 'y', token}
    for _, name in ipairs(OLD) do put(fields, name, name == 'u' and NOW or old[name]) end
    redis.call('HSET', key, unpack(fields))
    live(key, entry, ttl)
  end
  return {1, 0, 0, 1, token, before}
end

function verbs.release(key, index, token, ttl)
  local to, given, reason = take(), take(), optional(take())
  local entry = load(key)
  local lease = lease_of(entry, given, ttl)
  if to == '' and entry and entry.y == token and entry.v == VERSION then return {1, 0, 0, 1, token, seen(entry)} end
  if foreign(entry, token) then return refused(entry, true) end
  local open = not entry or entry.s == 'processing' or (to ~= '' and (entry.s == 'retrying' or entry.s == 'failed'))
  if not open then return refused(entry) end
  if to == '' then return undo(key, entry, token, ttl) end
  local before = seen(entry)
  local kept = ensure(key, entry, token)
  settle_claim(key, kept)
  if not reason then redis.call('HDEL', key, 'r') end
  local fields = {'s', to, 'l', lease, 'u', NOW}
  put(fields, 'r', reason)
  redis.call('HSET', key, unpack(fields))
  live(key, entry, ttl)
  return owned(kept, before)
end

function verbs.renew(key, index, token, ttl)
  local given = take()
  local entry = load(key)
  local lease = lease_of(entry, given, ttl)
  if foreign(entry, token) then return refused(entry, true) end
  if entry and entry.s ~= 'processing' and entry.s ~= 'retrying' then return refused(entry) end
  local before = seen(entry)
  local kept = ensure(key, entry, token)
  redis.call('HSET', key, 'l', lease, 'u', NOW)
  live(key, entry, ttl)
  return owned(kept, before)
end

local function may_park(entry, token)
  if not entry then return true end
  if entry.v ~= VERSION then return false end
  if entry.s == 'in_doubt' or entry.s == 'failed' then return true end
  return (entry.s == 'processing' or entry.s == 'retrying') and (entry.t == token or entry.locked <= now)
end

function verbs.park(key, index, token, ttl)
  local reason, count, owner, envelope = take(), take(), optional(take()), take()
  local entry = load(key)
  if not may_park(entry, token) then return refused(entry) end
  local before = seen(entry)
  local kept = ensure(key, entry, token)
  local late = kept.s == 'in_doubt' and kept.k == 'join' and kept.locked <= now
  if late then
    redis.call('HDEL', key, 'k', 'q', 'z')
    redis.call('HSET', key, 'r', reason, 'l', NOW, 'u', NOW, 'y', token)
    redis.call('ZADD', index, kept.p, key)
  elseif kept.s ~= 'in_doubt' then
    settle_claim(key, kept)
    redis.call('HDEL', key, 'k', 'q', 'z')
    local fields = {'s', 'in_doubt', 'r', reason, 'l', NOW, 'u', NOW, 'y', token, 'e', envelope, 'd', count, 'p', NOW}
    if not entry then put(fields, 'w', owner) end
    redis.call('HSET', key, unpack(fields))
    redis.call('PERSIST', key)
    redis.call('ZADD', index, NOW, key)
    redis.call('SADD', KEYS[1], index)
  elseif kept.y ~= token then
    redis.call('HSET', key, 'y', token, 'u', NOW, 'n', tonumber(kept.n or '0') + 1)
  end
  return {1, 0, 0, tonumber(kept.a), kept.t, before}
end

-- A set: h its members' lines, e their copies, k join while it waits.
function verbs.join(key, index, token)
  local place, line, needed, expires, frame = take(), take(), tonumber(take()), tonumber(take()), take()
  local entry = load(key)
  local members = entry and entry.h or '\n'
  if entry and entry.v ~= VERSION then return refused(entry) end
  if string.find(members, line, 1, true) then return {1, 0, 0, tonumber(entry.a), entry.t, seen(entry)} end
  local waits = not entry or (entry.s == 'in_doubt' and entry.k == 'join' and entry.locked > now)
  if not waits or string.find(members, place, 1, true) then return refused(entry) end
  members = members .. string.sub(line, 2)
  local _, ends = string.gsub(members, '\n', '')
  local complete = ends - 1 >= needed
  local due = text(complete and now or (entry and entry.locked or now + expires))
  if not entry then
    redis.call('HSET', key, unpack(begun(token, nil, '0', due)))
    redis.call('HSET', key, 's', 'in_doubt', 'p', NOW, 'd', '-1')
    redis.call('SADD', KEYS[1], index)
  end
  local copy = (redis.call('HGET', key, 'e') or '') .. frame
  redis.call('HSET', key, 'h', members, 'e', copy, 'l', due, 'u', NOW, 'k', complete and 'new' or 'join', 'z', NOW)
  if complete then redis.call('HSET', key, 'q', 'join') end
  redis.call('PERSIST', key)
  redis.call('ZADD', index, '-' .. due, key)
  return {1, 0, 0, entry and tonumber(entry.a) or 0, entry and entry.t or token, seen(entry)}
end

function verbs.decide(key, index, token, ttl)
  local decision, by = take(), take()
  local entry = load(key)
  local decidable = entry and entry.v == VERSION
    and (entry.s == 'in_doubt' or (entry.s == 'processing' and entry.p and entry.locked <= now))
  if not decidable then return refused(entry) end
  settle_claim(key, entry)
  redis.call('HSET', key, 's', 'in_doubt', 'l', NOW, 'k', decision, 'q', by, 'z', NOW)
  redis.call('ZADD', index, '-' .. entry.p, key)
  return {1, 0, 0, tonumber(entry.a), entry.t, seen(entry)}
end

local triggers = tonumber(ARGV[1])
local answers = {{NOW, found}}
local settings = {}
for number = 1, tonumber(take()) do
  local length = tonumber(take())
  settings[number] = cursor
  cursor = cursor + length
end
while cursor < #ARGV do
  local setting, token = settings[tonumber(take())], take()
  local next_command = cursor
  cursor = setting
  local verb, index, ttl = verbs[take()], KEYS[2 + tonumber(take())], take()
  answers[#answers + 1] = verb(KEYS[2 + triggers + #answers], index, token, ttl)
  cursor = next_command
end
return answers
