-- Repositories that organisations work on, the packs that were fetched of them, and what each Location begins with.
SET LOCAL ROLE oc_owner;

CREATE TABLE repository (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    space text NOT NULL DEFAULT '',
    -- In lower case, with its port unless that is 443.
    host text NOT NULL,
    -- Without `.git` at its end.
    path text NOT NULL,
    -- The branch that HEAD named when it was last fetched.
    default_branch text,
    created_ms bigint NOT NULL,
    -- When a pack of it was last fetched.
    fetched_ms bigint,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, space, host, path)
);

-- Each pack has all objects that its refs lead to and that no earlier pack of the repository has.
CREATE TABLE repository_pack (
    ordinal bigint NOT NULL,
    bytes bigint NOT NULL,
    created_ms bigint NOT NULL,
    org_id uuid NOT NULL,
    repository_id text COLLATE "C" NOT NULL,
    -- The pack's own id, 40 hexadecimal digits. Its blob is named by the repository and this.
    pack text COLLATE "C" NOT NULL,
    -- The commit that it was fetched for.
    commit text COLLATE "C" NOT NULL,
    -- The branches and tags of the repository then, one a line.
    refs text NOT NULL,
    PRIMARY KEY (org_id, repository_id, ordinal),
    FOREIGN KEY (org_id, repository_id) REFERENCES repository ON DELETE CASCADE
);

-- The beginning of a Location, if that is not nothing. No drain starts there before it is filled.
CREATE TABLE location_origin (
    org_id uuid NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    -- 'repository'.
    kind text NOT NULL,
    repository_id text COLLATE "C" NOT NULL,
    -- The branch, tag or commit that was asked for; NULL for the default branch.
    wanted text,
    -- The commit, once it was found out. It never changes then.
    commit text COLLATE "C",
    -- The branch that is checked out, by its full name.
    branch text,
    -- The number of the newest pack of the repository that the Location has.
    packs_through bigint,
    -- The token under which the Location was first filled.
    filled_token bigint,
    -- How far the fill is, for people: a stage, and bytes. Written at most about once a second.
    stage text,
    stage_bytes bigint NOT NULL DEFAULT 0,
    -- Why the last try came to nothing: a code and a sentence. A later success removes it.
    fault_code text,
    fault text,
    PRIMARY KEY (org_id, location_id),
    FOREIGN KEY (org_id, location_id) REFERENCES location ON DELETE CASCADE,
    FOREIGN KEY (org_id, repository_id) REFERENCES repository
);

-- Patches and bundles of sessions that somebody has asked for. Any worker makes them.
CREATE TABLE session_out (
    asked_ms bigint NOT NULL,
    -- Until when the worker that makes it is believed to; NULL before one has begun.
    claimed_ms bigint,
    bytes bigint,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    -- 'patch' or 'bundle'.
    kind text NOT NULL,
    -- 'asked', 'made', 'nothing' or 'failed'.
    state text NOT NULL,
    -- The blob, once it is made.
    blob text,
    -- The first commit, the newest one, and the commit of what was not committed.
    base text,
    head text,
    wip text,
    fault text,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, location_id) REFERENCES location ON DELETE CASCADE
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['repository', 'repository_pack', 'location_origin', 'session_out'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_app, oc_migrate', name);
    END LOOP;
END $$;
CREATE POLICY sched ON session_out FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, asked_ms, claimed_ms, state) ON session_out TO oc_sched;
RESET ROLE;
