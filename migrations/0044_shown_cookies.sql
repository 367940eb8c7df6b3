-- A login's former cookie is good until the new one was shown (docs/decisions/0067).
SET LOCAL ROLE oc_owner;
-- When the cookie with `hash` was shown first; before `rotated_ms` or NULL: not yet.
ALTER TABLE login ADD COLUMN shown_ms bigint;
-- The cookie that was replaced without having been shown. Whoever shows it later shows that the former one was copied.
ALTER TABLE login ADD COLUMN dropped_hash bytea;
GRANT SELECT (shown_ms, dropped_hash) ON login TO oc_sched;
RESET ROLE;
