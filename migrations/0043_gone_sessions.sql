-- Sessions that are deleted, and of which rows are left: they are counted and removed in pages (docs/decisions/0102).
SET LOCAL ROLE oc_owner;

CREATE TABLE gone_session (
    org_id uuid NOT NULL,
    -- Its head's, which no other session has. Its rows name it.
    incarnation bigint NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    -- How many its log had.
    events bigint NOT NULL,
    -- What it used is in the sums, and in those of sessions that are gone. Until then usage_through says how far.
    counted boolean NOT NULL DEFAULT false,
    gone_ms bigint NOT NULL,
    PRIMARY KEY (org_id, incarnation)
);
ALTER TABLE gone_session ENABLE ROW LEVEL SECURITY;
ALTER TABLE gone_session FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON gone_session TO oc_app
    USING (org_id = nullif(current_setting('oc.org', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('oc.org', true), '')::uuid);
CREATE POLICY migrate ON gone_session TO oc_migrate USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON gone_session TO oc_app, oc_migrate;
-- Whoever removes the rows goes through all organisations.
CREATE POLICY sched ON gone_session FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id) ON gone_session TO oc_sched;
RESET ROLE;
