-- People, service accounts, the secrets of their keys, logins in browsers, and what was revoked with its work.
SET LOCAL ROLE oc_owner;

-- Who may act for an organisation. A person belongs to one organisation.
CREATE TABLE principal (
    created_ms bigint NOT NULL,
    -- Nothing of it is served from then on; NULL for an enabled one.
    disabled_ms bigint,
    -- Within a minute, when it last did something.
    seen_ms bigint,
    org_id uuid NOT NULL REFERENCES organisation,
    -- `usr_…` for a person, `svc_…` for a service account.
    id text COLLATE "C" NOT NULL,
    -- 'viewer', 'member', 'admin' or 'owner'.
    role text NOT NULL,
    name text,
    -- For people to read. Nobody is recognised by it.
    email text,
    PRIMARY KEY (org_id, id)
);

-- A key that has a row here is found by its id, and proved by one of its secrets. While it is rotated it has two.
CREATE TABLE key_secret (
    created_ms bigint NOT NULL,
    -- The end of a replaced secret's grace; NULL for one that is not replaced.
    until_ms bigint,
    org_id uuid NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    -- SHA-256 of the whole key.
    hash bytea NOT NULL,
    PRIMARY KEY (org_id, key_id, hash),
    -- A request names the key and not the organisation.
    UNIQUE (key_id, hash),
    FOREIGN KEY (org_id, key_id) REFERENCES api_key ON DELETE CASCADE
);

-- The owner, NULL for the keys of before there were people: those are the first service account's.
ALTER TABLE api_key ADD COLUMN principal_id text COLLATE "C";
-- Within a minute, when it was last used.
ALTER TABLE api_key ADD COLUMN used_ms bigint;
-- NULL for a key whose secrets are in `key_secret`.
ALTER TABLE api_key ALTER COLUMN hash DROP NOT NULL;

-- A person's login in one browser.
CREATE TABLE login (
    created_ms bigint NOT NULL,
    -- When its secret was last replaced. It is, while it is in use: who does not come back for long loses it.
    rotated_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    ended_ms bigint,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    -- SHA-256 of the cookie, and of the one before it, which is good for some seconds more.
    hash bytea NOT NULL,
    former_hash bytea,
    -- The key that it began with: it ends with that.
    key_id text COLLATE "C",
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, user_id) REFERENCES principal ON DELETE CASCADE
);

-- A link that logs a person in once.
CREATE TABLE login_link (
    expires_ms bigint NOT NULL,
    used_ms bigint,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, user_id) REFERENCES principal ON DELETE CASCADE
);

-- Keys, people and services whose admitted work was to be stopped. A gateway stops it, and goes on for some seconds.
CREATE TABLE revocation (
    at_ms bigint NOT NULL,
    done_ms bigint,
    org_id uuid NOT NULL,
    -- The id of a key, a person or a service account.
    subject text COLLATE "C" NOT NULL,
    PRIMARY KEY (org_id, subject, at_ms)
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['principal', 'key_secret', 'login', 'login_link', 'revocation'] LOOP
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
-- A credential is proved before its organisation is known, and those in use are asked for again together.
CREATE POLICY sched ON principal FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON key_secret FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON login FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON revocation FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, role, disabled_ms) ON principal TO oc_sched;
GRANT SELECT (org_id, key_id, hash, until_ms) ON key_secret TO oc_sched;
GRANT SELECT (principal_id) ON api_key TO oc_sched;
GRANT SELECT (org_id, id, user_id, hash, former_hash, rotated_ms, expires_ms, ended_ms) ON login TO oc_sched;
GRANT SELECT (org_id, subject, at_ms, done_ms) ON revocation TO oc_sched;
RESET ROLE;
