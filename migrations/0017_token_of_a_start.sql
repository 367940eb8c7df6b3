-- The fencing token of a drain that begins with this event, for audit: `opencode-cloud check` shows a stale one. NULL of
-- every other event, of a start that wrote none, and of what an older build wrote.
SET LOCAL ROLE oc_owner;
ALTER TABLE session_event ADD COLUMN token bigint;
RESET ROLE;
