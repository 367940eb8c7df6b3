-- Identity providers of organisations, sign-ins that are under way there, and whom they vouch for.
SET LOCAL ROLE oc_owner;

-- A connection to an identity provider. Its issuer never changes: another issuer is another connection.
CREATE TABLE idp (
    created_ms bigint NOT NULL,
    -- When a test last succeeded with the connection as it is; NULL before that.
    tested_ms bigint,
    -- Counts up with the secret, which is bound to it.
    version bigint NOT NULL,
    -- A ticket begins one test without a login; its end and its hash.
    ticket_until_ms bigint,
    secret_id integer,
    is_active boolean NOT NULL,
    org_id uuid NOT NULL REFERENCES organisation,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    issuer text NOT NULL,
    client_id text NOT NULL,
    -- The algorithm of the token that the last test saw. An active connection takes no other.
    algorithm text,
    -- JSON, which the store does not read: scopes, groups and roles, domains.
    rules text NOT NULL,
    -- JSON: what the last test saw.
    report text,
    -- The client's secret; NULL for a public client.
    sealed bytea,
    ticket_hash bytea,
    PRIMARY KEY (org_id, id),
    -- A browser names the connection and not the organisation.
    UNIQUE (id),
    UNIQUE (org_id, name),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret,
    CHECK ((sealed IS NULL) = (secret_id IS NULL)),
    CHECK (NOT is_active OR algorithm IS NOT NULL)
);

-- A person as a connection names them. Nobody is found by an e-mail address.
CREATE TABLE idp_identity (
    created_ms bigint NOT NULL,
    seen_ms bigint NOT NULL,
    org_id uuid NOT NULL,
    idp_id text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (org_id, idp_id, subject),
    -- For the end of a person.
    UNIQUE (org_id, user_id, idp_id, subject),
    FOREIGN KEY (org_id, idp_id) REFERENCES idp ON DELETE CASCADE,
    FOREIGN KEY (org_id, user_id) REFERENCES principal ON DELETE CASCADE
);

-- A login that began at a connection: it ends with it, and the provider is told of its end.
CREATE TABLE idp_login (
    secret_id integer NOT NULL,
    org_id uuid NOT NULL,
    login_id text COLLATE "C" NOT NULL,
    idp_id text COLLATE "C" NOT NULL,
    -- The provider's token, for its own logout.
    sealed bytea NOT NULL,
    PRIMARY KEY (org_id, login_id),
    -- For the end of a connection.
    UNIQUE (org_id, idp_id, login_id),
    FOREIGN KEY (org_id, login_id) REFERENCES login ON DELETE CASCADE,
    FOREIGN KEY (org_id, idp_id) REFERENCES idp ON DELETE CASCADE,
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret
);

-- A sign-in whose browser is at the provider. It is deleted before the provider is asked for a token.
CREATE TABLE login_attempt (
    expires_ms bigint NOT NULL,
    secret_id integer NOT NULL,
    org_id uuid NOT NULL,
    idp_id text COLLATE "C" NOT NULL,
    -- SHA-256 of the state, which comes back, and of the cookie of the browser that began.
    state_hash bytea NOT NULL,
    browser_hash bytea NOT NULL,
    purpose text NOT NULL CHECK (purpose IN ('login', 'link', 'test')),
    -- Who links a connection to themselves.
    user_id text COLLATE "C",
    -- The page to come back to.
    return_to text NOT NULL,
    -- State, nonce and verifier.
    sealed bytea NOT NULL,
    PRIMARY KEY (org_id, idp_id, state_hash),
    -- The oldest are forgotten first.
    UNIQUE (org_id, idp_id, expires_ms, state_hash),
    FOREIGN KEY (org_id, idp_id) REFERENCES idp ON DELETE CASCADE,
    FOREIGN KEY (org_id, user_id) REFERENCES principal ON DELETE CASCADE,
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret,
    CHECK ((purpose = 'link') = (user_id IS NOT NULL))
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['idp', 'idp_identity', 'idp_login', 'login_attempt'] LOOP
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
-- A sign-in begins before its organisation is known.
CREATE POLICY sched ON idp FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, name, is_active) ON idp TO oc_sched;
RESET ROLE;
