-- Requests that share a lock. The first one is the hold itself; `sharers` has the others, a line each: client in 16 hexadecimal
-- digits, request, lease_ms, passes, owner, expires_us, taken.
--
-- `passes` of a shared request is the number of permits with a minus. `number` of a shared waiter is lowered by 2^53, so that
-- all of them come before exclusive waiters.
ALTER TABLE hold ADD COLUMN sharers TEXT NOT NULL DEFAULT '';
