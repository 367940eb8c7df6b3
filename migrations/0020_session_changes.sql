-- The sessions that each commit of the last hours has changed, for feeds of a whole organisation.
SET LOCAL ROLE oc_owner;

-- A row for each session that a commit has changed. The commits that are visible in a snapshot, and not in an earlier
-- one, are those whose xid it says: so nothing that commits late is passed over (docs/decisions/0058).
--
-- The rows of an hour are in a partition of their own, and four take turns: the hour now, the two before it, and the one
-- that is emptied for the next hour. A partition for the hour is always there, whoever forgot to empty it.
CREATE TABLE session_change (
    slot smallint NOT NULL DEFAULT (date_part('hour', now() AT TIME ZONE 'UTC')::integer % 4),
    -- The events that are new; both 0 where no event tells the change.
    first integer NOT NULL,
    last integer NOT NULL,
    incarnation integer NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    org_id uuid NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    -- The session was deleted.
    gone boolean NOT NULL DEFAULT false,
    PRIMARY KEY (org_id, xid, incarnation, first, slot)
) PARTITION BY LIST (slot);

DO $$
DECLARE
    name text := 'session_change';
BEGIN
    FOR slot IN 0 .. 4 LOOP
        IF slot < 4 THEN
            name := 'session_change_' || slot;
            EXECUTE format('CREATE TABLE %I PARTITION OF session_change FOR VALUES IN (%s)', name, slot);
            EXECUTE format('GRANT TRUNCATE ON %I TO oc_app', name);
        ELSE
            name := 'session_change';
        END IF;
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON %I TO oc_migrate', name);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO oc_app', name);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
    END LOOP;
END $$;
CREATE POLICY sched ON session_change FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, xid, incarnation, session_id, first, last, gone) ON session_change TO oc_sched;
RESET ROLE;
