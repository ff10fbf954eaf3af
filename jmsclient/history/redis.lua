-- The transitions of jmsclient/history/entries.py for a group of commands, in one atomic call; the same tests hold both.
--
-- KEYS: the set of triggers with parked messages; the mark; then for each trigger of the group the index of its parked messages (a
--   sorted set by time, in which the time of a decided one is negative); then the entries, one hash each.
-- ARGV: the number of triggers; the server's run id; 1 to write in any case, so that a WAIT after this covers what was read; then
--   what commands have in common: the number of settings, then for each how many arguments it has, its verb, which trigger,
--   history_ttl in ms, and what follows; then the commands, in the order of their entries, by runs that share a setting: which
--   setting, how many commands, their tokens.
--   claim: lease, take_over, owner, body hash, decided, 1 where a lost store is no hindrance, 1 for a brief answer
--   complete: outcome
--   release: state or '', lease, reason    renew: lease    park: reason, delivery count, owner, envelope    decide: decision, by
--   join: what the lines of its place begin with, its line, how many are needed, how long it waits for them, its frame
--   Leases are microseconds from now, '' for none given. What may be absent is '' for absent, else '=' and the value.
-- Answers: {the server's time in microseconds, 1 for a missing mark and 2 for a changed one}, then for each command {done, lease
--   lost, fencing token, attempt, token, entry} and for a claim 1 where the store is cautious. What happens to almost every
--   message is a number: done, by its own token, in its first attempt, over nothing that is shown; the number is the fencing token,
--   below zero where the store is cautious. 0 is the brief answer to a claim: completed before.
--
-- The mark (TR-53), a hash without time to live: r the run id, l when something was lost, c written for a WAIT. A claim is cautious
--   for its history_ttl after that.
--
-- Fields of an entry: s state, t token, f fencing token (none: c), l lease until (completed: none), a attempt (none: 1), c created
--   (started), u updated (none: c), o outcome (none, and completed: done), r reason, w who (owner), h body hash, n copies, v version,
--   y left by; b and such a letter: what a claim was made over; e envelope, d delivery count, p parked at; k decision, q who
--   decided, z when. Times in microseconds of this server. No l: locked as long as the key lives. The time to live of the key is the
--   history_ttl; one with an envelope has none. What need not be there is not: each field of a new entry costs the server.

local VERSION = '1'
local call = redis.call
local clock = call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local function text(number) return string.format('%.0f', number) end

local NOW = text(now)
local RUN = ARGV[2]

-- What has no mark, or the mark of another run, may have lost what it knew.
local mark = call('HMGET', KEYS[2], 'r', 'l')
local lost_at = tonumber(mark[2] or '')
local found = (not lost_at and 1) or (mark[1] ~= RUN and 2) or 0
if found > 0 then
  call('HSET', KEYS[2], 'r', RUN, 'l', NOW)
  lost_at = now
elseif ARGV[3] == '1' then
  call('HSET', KEYS[2], 'c', NOW)
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

local function put(fields, name, value)
  if value then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end

-- What happens to few messages, made when the first of a group needs it: to make these functions costs more than a claim.
local function make_others()
  local others = {}

  local FIELDS = {'s', 't', 'f', 'l', 'a', 'c', 'u', 'o', 'r', 'w', 'h', 'n', 'v', 'y', 'bs', 'k', 'q', 'z', 'p'}
  local OLD = {'s', 't', 'f', 'l', 'a', 'c', 'u', 'r', 'w', 'h', 'n', 'k', 'q', 'z'}
  local OLD_FIELDS = {}
  for i, name in ipairs(OLD) do OLD_FIELDS[i] = 'b' .. name end

  -- The key lives for the history_ttl; for the sake of an envelope, until it is completed (p: parked at).
  local function live(key, entry, ttl)
    if entry and entry.p then call('PERSIST', key) else call('PEXPIRE', key, ttl) end
  end

  local function locked_until(key, lease)
    local number = tonumber(lease or '')
    if number then return number end
    local left = call('PTTL', key)
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
    entry.f, entry.a, entry.u = entry.f or entry.c, entry.a or '1', entry.u or entry.c
    if entry.s == 'completed' then
      entry.locked, entry.o = 0, entry.o or 'done'
    else
      entry.locked = locked_until(key, entry.l)
    end
    return entry
  end

  local function seen(entry)
    if not entry then return false end
    return {entry.s, entry.t or '', entry.f or '0', text(entry.locked), entry.a or '1', entry.c or NOW, entry.u or NOW,
      entry.o or false, entry.r or false, entry.w or false, entry.h or false, entry.n or '0', entry.v or '0',
      entry.k or false, entry.q or false, entry.z or NOW}
  end

  local function before_of(key, entry)
    if not entry.bs then return nil end
    local values = call('HMGET', key, unpack(OLD_FIELDS))
    local old = {v = VERSION}
    for i, name in ipairs(OLD) do old[name] = values[i] end
    old.locked = locked_until(key, old.l)
    return old
  end

  local function fence(entry)
    local last = entry and tonumber(entry.f)
    return last and last >= now and text(last + 1) or NOW
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
    if not entry.p then return call('DEL', key) end
    for _, name in ipairs(FIELDS) do
      if name ~= 'p' then call('HDEL', key, name) end
    end
    call('HDEL', key, unpack(OLD_FIELDS))
  end

  local function ensure(key, entry, token)
    if not entry then call('HSET', key, unpack(begun(token, nil, '1', NOW))) end
    return entry or {f = NOW, a = '1', t = token}
  end

  local function settle_claim(key, entry)
    if entry.bs then call('HDEL', key, unpack(OLD_FIELDS)) end
  end

  local function unlist(key, index)
    call('HDEL', key, 'e', 'd', 'p')
    call('ZREM', index, key)
    if call('EXISTS', index) == 0 then call('SREM', KEYS[1], index) end
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

  local function may_claim(entry, token, take_over, hash, decided)
    if entry.v ~= VERSION or (hash and entry.h and entry.h ~= hash) then return false end
    if entry.s == 'retrying' then return entry.locked <= now or entry.t == token end
    if entry.s == 'in_doubt' then return decided and entry.k == 'new' end
    return take_over and entry.s == 'processing' and entry.locked <= now
  end

  function others.claim_over(key, token, setting)
    local entry = load(key)
    local given, owner, hash, decided = setting[1], optional(setting[3]), optional(setting[4]), setting[5] == '1'
    local lease = lease_of(entry, given, setting.ttl)
    if entry.v == VERSION and entry.s == 'processing' and entry.t == token then
      local answer = owned(entry, seen(before_of(key, entry)))
      call('HSET', key, 'l', lease, 'u', NOW)
      live(key, entry, setting.ttl)
      return answer
    end
    if not may_claim(entry, token, setting[2] == '1', hash, decided) then return refused(entry) end
    local attempt = tonumber(entry.a) + 1
    local fields = begun(token, entry, attempt, lease)
    put(fields, 'w', owner)
    put(fields, 'h', hash or entry.h)
    for _, name in ipairs(OLD) do put(fields, 'b' .. name, entry[name]) end
    for _, name in ipairs({'k', 'q', 'z'}) do put(fields, name, entry[name]) end
    clear(key, entry)
    call('HSET', key, unpack(fields))
    live(key, entry, setting.ttl)
    return {1, 0, tonumber(fields[6]), attempt, token, seen(entry)}
  end

  function others.complete(key, token, setting)
    local outcome, entry = setting[1], load(key)
    if foreign(entry, token) then return refused(entry, true) end
    if entry and (entry.s == 'completed' or entry.s == 'joined') then return owned(entry, false) end
    local kept = ensure(key, entry, token)
    call('HSET', key, 's', outcome == 'joined' and 'joined' or 'completed', 'o', outcome, 'l', NOW, 'u', NOW)
    settle_claim(key, kept)
    if kept.p then unlist(key, setting.index) end
    call('PEXPIRE', key, setting.ttl)
    return owned(kept, false)
  end

  local function undo(key, entry, token, ttl)
    local before = seen(entry)
    local old = entry and before_of(key, entry)
    if entry then clear(key, entry) end
    if old then
      local fields = {'v', VERSION, 'y', token}
      for _, name in ipairs(OLD) do put(fields, name, name == 'u' and NOW or old[name]) end
      call('HSET', key, unpack(fields))
      live(key, entry, ttl)
    end
    return {1, 0, 0, 1, token, before}
  end

  function others.release(key, token, setting)
    local to, given, reason, ttl = setting[1], setting[2], optional(setting[3]), setting.ttl
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
    if not reason then call('HDEL', key, 'r') end
    local fields = {'s', to, 'l', lease, 'u', NOW}
    put(fields, 'r', reason)
    call('HSET', key, unpack(fields))
    live(key, entry, ttl)
    return owned(kept, before)
  end

  function others.renew(key, token, setting)
    local given, ttl = setting[1], setting.ttl
    local entry = load(key)
    local lease = lease_of(entry, given, ttl)
    if foreign(entry, token) then return refused(entry, true) end
    if entry and entry.s ~= 'processing' and entry.s ~= 'retrying' then return refused(entry) end
    local before = seen(entry)
    local kept = ensure(key, entry, token)
    call('HSET', key, 'l', lease, 'u', NOW)
    live(key, entry, ttl)
    return owned(kept, before)
  end

  local function may_park(entry, token, reason)
    if not entry then return true end
    if entry.v ~= VERSION then return false end
    if entry.s == 'in_doubt' or entry.s == 'failed' then return true end
    local over = entry.t == token or entry.locked <= now or reason == 'in_progress'
    return (entry.s == 'processing' or entry.s == 'retrying') and over
  end

  function others.park(key, token, setting)
    local reason, count, owner, envelope, index = setting[1], setting[2], optional(setting[3]), setting[4], setting.index
    local entry = load(key)
    if not may_park(entry, token, reason) then return refused(entry) end
    local before = seen(entry)
    local kept = ensure(key, entry, token)
    local late = kept.s == 'in_doubt' and kept.k == 'join' and kept.locked <= now
    if late then
      call('HDEL', key, 'k', 'q', 'z')
      call('HSET', key, 'r', reason, 'l', NOW, 'u', NOW, 'y', token)
      call('ZADD', index, kept.p, key)
    elseif kept.s ~= 'in_doubt' then
      settle_claim(key, kept)
      call('HDEL', key, 'k', 'q', 'z')
      local fields = {'s', 'in_doubt', 'r', reason, 'l', NOW, 'u', NOW, 'y', token, 'e', envelope, 'd', count, 'p', NOW}
      if not entry then put(fields, 'w', owner) end
      call('HSET', key, unpack(fields))
      call('PERSIST', key)
      call('ZADD', index, NOW, key)
      call('SADD', KEYS[1], index)
    elseif kept.y ~= token then
      call('HSET', key, 'y', token, 'u', NOW, 'n', tonumber(kept.n or '0') + 1)
    end
    return {1, 0, 0, tonumber(kept.a), kept.t, before}
  end

  -- A set: h its members' lines, e their copies, k join while it waits.
  function others.join(key, token, setting)
    local place, line, needed, expires, frame = setting[1], setting[2], tonumber(setting[3]), tonumber(setting[4]), setting[5]
    local index = setting.index
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
      call('HSET', key, unpack(begun(token, nil, '0', due)))
      call('HSET', key, 's', 'in_doubt', 'p', NOW, 'd', '-1')
      call('SADD', KEYS[1], index)
    end
    local copy = (call('HGET', key, 'e') or '') .. frame
    call('HSET', key, 'h', members, 'e', copy, 'l', due, 'u', NOW, 'k', complete and 'new' or 'join', 'z', NOW)
    if complete then call('HSET', key, 'q', 'join') end
    call('PERSIST', key)
    call('ZADD', index, '-' .. due, key)
    return {1, 0, 0, entry and tonumber(entry.a) or 0, entry and entry.t or token, seen(entry)}
  end

  function others.decide(key, token, setting)
    local decision, by, index = setting[1], setting[2], setting.index
    local entry = load(key)
    local decidable = entry and entry.v == VERSION
      and (entry.s == 'in_doubt' or (entry.s == 'processing' and entry.p and entry.locked <= now))
    if not decidable then return refused(entry) end
    settle_claim(key, entry)
    call('HSET', key, 's', 'in_doubt', 'l', NOW, 'k', decision, 'q', by, 'z', NOW)
    call('ZADD', index, '-' .. entry.p, key)
    return {1, 0, 0, tonumber(entry.a), entry.t, seen(entry)}
  end

  return others
end

local others
local function other()
  others = others or make_others()
  return others
end

local verbs = {}  -- of a key, a token and a setting: index, ttl, cautious and the verb's own arguments by number

-- What the entry of a first claim begins with; the token is put in its place.
local function first(setting)
  local fields = {'s', 'processing', 't', '', 'l', lease_field(setting[1]), 'c', NOW, 'v', VERSION}
  put(fields, 'w', optional(setting[3]))
  put(fields, 'h', optional(setting[4]))
  setting.first = fields
  return fields
end

-- The answer to the claim of what is completed: a duplicate should not cost what a new message does.
local function completed_before(key)
  local values = call('HMGET', key, 's', 't', 'f', 'l', 'a', 'c', 'u', 'o', 'r', 'w', 'h', 'n', 'v', 'k', 'q', 'z')  -- as `seen`
  values[3], values[4], values[5] = values[3] or values[6], '0', values[5] or '1'
  values[7], values[8], values[12], values[16] = values[7] or values[6], values[8] or 'done', values[12] or '0', values[16] or NOW
  return {0, 0, 0, 1, '', values}
end

function verbs.claim(key, token, setting)
  local answer
  local values = redis.pcall('HMGET', key, 's', 'v')
  if values[1] == 'completed' and values[2] == VERSION then
    if setting[7] == '1' then return 0 end
    answer = completed_before(key)
  elseif values.err or values[1] then
    answer = other().claim_over(key, token, setting)
  elseif setting[5] == '1' or (setting.cautious and setting[6] ~= '1') then
    answer = {0, 0, 0, 1, '', false}
  else
    local fields = setting.first or first(setting)
    fields[4] = token
    call('HSET', key, unpack(fields))
    call('PEXPIRE', key, setting.ttl)
    return setting.cautious and -now or now
  end
  answer[7] = setting.cautious and 1 or 0
  return answer
end

function verbs.complete(key, token, setting)
  local values = redis.pcall('HMGET', key, 't', 's', 'v', 'c', 'f', 'a', 'bs', 'p')
  if values.err or values[1] ~= token or values[2] ~= 'processing' or values[3] ~= VERSION or values[7] or values[8] then
    return other().complete(key, token, setting)
  end
  local outcome = setting[1]
  if outcome == 'done' then
    call('HSET', key, 's', 'completed', 'u', NOW)
  else
    call('HSET', key, 's', outcome == 'joined' and 'joined' or 'completed', 'o', outcome, 'l', NOW, 'u', NOW)
  end
  call('PEXPIRE', key, setting.ttl)
  local fence, attempt = tonumber(values[5] or values[4]), values[6] or '1'
  if attempt == '1' then return fence end
  return {1, 0, fence, tonumber(attempt), token, false}
end

local triggers = tonumber(ARGV[1])
local entries = 2 + triggers
local cursor = 4
local settings = {}
for number = 1, tonumber(ARGV[cursor]) do
  local ends = cursor + 1 + tonumber(ARGV[cursor + 1])
  local setting = {unpack(ARGV, cursor + 5, ends)}
  local verb = ARGV[cursor + 2]
  setting.verb = verbs[verb] or other()[verb]
  setting.index = KEYS[2 + tonumber(ARGV[cursor + 3])]
  setting.ttl = ARGV[cursor + 4]
  setting.cautious = now < lost_at + tonumber(setting.ttl) * 1000
  settings[number] = setting
  cursor = ends
end
local answers = {{NOW, found}}
local answered = 1
while cursor < #ARGV do
  local setting = settings[tonumber(ARGV[cursor + 1])]
  local verb, ends = setting.verb, cursor + 2 + tonumber(ARGV[cursor + 2])
  for token = cursor + 3, ends do
    answers[answered + 1] = verb(KEYS[entries + answered], ARGV[token], setting)
    answered = answered + 1
  end
  cursor = ends
end
return answers
