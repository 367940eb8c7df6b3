-- A login link carries what its maker showed, and a login what it was made by, so that they end together (docs/decisions/0086).
SET LOCAL ROLE oc_owner;

-- The login that made it; NULL for a key's or the operator's.
ALTER TABLE login_link ADD COLUMN login_id text COLLATE "C";
-- The key that made it, or that the login which made it began with.
ALTER TABLE login_link ADD COLUMN key_id text COLLATE "C";
-- When its maker proved who they are; NULL for the operator's, and for a link of before: when it is followed.
ALTER TABLE login_link ADD COLUMN auth_ms bigint;
-- When the login that it begins ends at the latest.
ALTER TABLE login_link ADD COLUMN until_ms bigint;

-- The login whose link it began with: it is ended with that.
ALTER TABLE login ADD COLUMN parent_id text COLLATE "C";

-- Whether a link that somebody shows is known is asked for many together, before its organisation is.
CREATE POLICY sched ON login_link FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id) ON login_link TO oc_sched;
RESET ROLE;
