-- Codes with which owners get in when nothing else does, what owners are told, and where logins began.
SET LOCAL ROLE oc_owner;

-- When its person last proved who they are; NULL: when it began.
ALTER TABLE login ADD COLUMN auth_ms bigint;
-- Within a minute, when it was last used.
ALTER TABLE login ADD COLUMN seen_ms bigint;
-- 'link', 'key', 'provider' or 'code'; NULL for a login of before.
ALTER TABLE login ADD COLUMN began_by text;
-- The address that it began from, and the browser's name for itself.
ALTER TABLE login ADD COLUMN address text;
ALTER TABLE login ADD COLUMN agent text;
GRANT SELECT (created_ms, auth_ms) ON login TO oc_sched;

-- The login that the browser had when the sign-in began, and whose cookie it showed. The new login takes its place.
ALTER TABLE login_attempt ADD COLUMN former_id text COLLATE "C";

-- A code with which an owner begins a login, once. A new set takes the place of the one before.
CREATE TABLE recovery_code (
    created_ms bigint NOT NULL,
    used_ms bigint,
    org_id uuid NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    -- SHA-256 of the code.
    hash bytea NOT NULL,
    PRIMARY KEY (org_id, user_id, hash),
    -- A browser shows the code and names no organisation.
    UNIQUE (hash),
    FOREIGN KEY (org_id, user_id) REFERENCES principal ON DELETE CASCADE
);

-- Something that all owners are told of, a row for each of them.
CREATE TABLE alert (
    at_ms bigint NOT NULL,
    -- When this owner said that they have read it.
    read_ms bigint,
    org_id uuid NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    -- The same for all owners.
    id text COLLATE "C" NOT NULL,
    -- 'sso.activated', 'recovery.made' or 'recovery.used'.
    kind text NOT NULL,
    -- The person or service account that did it.
    by_id text COLLATE "C" NOT NULL,
    -- JSON, which the store does not read.
    about text NOT NULL,
    PRIMARY KEY (org_id, user_id, id),
    FOREIGN KEY (org_id, user_id) REFERENCES principal ON DELETE CASCADE
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['recovery_code', 'alert'] LOOP
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
-- A code is shown before its organisation is known.
CREATE POLICY sched ON recovery_code FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, hash) ON recovery_code TO oc_sched;
RESET ROLE;
