-- Calls that wait for somebody's answer, and the permissions that people have given projects for good.
SET LOCAL ROLE oc_owner;

-- A projection of `tool.asked` and `tool.answered`. The question is in the event.
CREATE TABLE ask (
    incarnation bigint NOT NULL,
    asked_seq bigint NOT NULL,
    expires_ms bigint NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    -- The permission, or `question`.
    action text NOT NULL,
    projector_version smallint NOT NULL,
    -- `pending`, `answered`, or `withdrawn`: its call was settled without an answer.
    status text NOT NULL,
    answered_seq bigint,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);

-- No projection: it outlives the session in which it was given.
CREATE TABLE saved_permission (
    org_id uuid NOT NULL,
    project_id text COLLATE "C" NOT NULL,
    -- Its name for people who take it back.
    id text COLLATE "C" NOT NULL GENERATED ALWAYS AS
        ('svp_' || md5(project_id || ' ' || action || ' ' || pattern)) STORED,
    action text NOT NULL,
    -- One of the patterns that an ask offered to save, word for word.
    pattern text NOT NULL,
    -- The id of the key that gave it.
    by_key text,
    saved_ms bigint NOT NULL,
    PRIMARY KEY (org_id, project_id, action, pattern),
    FOREIGN KEY (org_id, project_id) REFERENCES project (org_id, id) ON DELETE CASCADE
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['ask', 'saved_permission'] LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_app', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_migrate', name);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
    END LOOP;
END $$;
CREATE POLICY sched ON ask FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, status, expires_ms) ON ask TO oc_sched;
RESET ROLE;
