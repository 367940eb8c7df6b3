-- What an organisation sets up about model providers: credentials (sealed), sign-ins under way, settings, the rate
-- limit that its workers share; and the last good catalog of models, which belongs to no tenant.
SET LOCAL ROLE oc_owner;

-- Replies hold provider state and calls that a provider ran: what builds before this schema would not show a model.
UPDATE cluster SET feature_level = 3;

-- Data keys, each wrapped by a master key that the database never sees. A new master key rewraps these rows alone.
CREATE TABLE organisation_secret (
    org_id uuid NOT NULL REFERENCES organisation,
    id integer NOT NULL,
    -- Which master key wraps it.
    key_id text NOT NULL,
    wrapped bytea NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);

CREATE TABLE credential (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- Whose it is: a user's name, '' for the organisation's.
    owner text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    label text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('api-key', 'oauth', 'aws')),
    -- The last characters, for people; '' when so much of it must not be shown.
    hint text NOT NULL,
    -- Bound to organisation, id and version: a row's secret opens nowhere else.
    sealed bytea NOT NULL,
    secret_id integer NOT NULL,
    version bigint NOT NULL,
    -- When its access token ends; NULL: never, or nobody knows.
    expires_ms bigint,
    -- Until when one process of the cluster may refresh it, by the database's clock.
    refresh_until_ms bigint NOT NULL DEFAULT 0,
    -- The one of its owner that turns use.
    active boolean NOT NULL,
    -- Why the provider does not take it any more; NULL while it does.
    fault text,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, provider, owner, label),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret
);
CREATE UNIQUE INDEX credential_active ON credential (org_id, provider, owner) WHERE active;
CREATE INDEX credential_secret ON credential (org_id, secret_id);

-- A sign-in at a provider that somebody has begun.
CREATE TABLE oauth_attempt (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    label text NOT NULL,
    method text NOT NULL CHECK (method IN ('code', 'device')),
    -- The verifier, or the device code. Emptied when the attempt ends.
    sealed bytea NOT NULL,
    secret_id integer NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'complete', 'failed')),
    -- What went wrong, for people.
    message text,
    -- What came of it.
    credential_id text COLLATE "C",
    expires_ms bigint NOT NULL,
    -- The provider is not asked before this, by the database's clock: a lease, and the device flow's interval.
    ask_after_ms bigint NOT NULL DEFAULT 0,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret
);
CREATE INDEX oauth_attempt_expires ON oauth_attempt (org_id, expires_ms);
CREATE INDEX oauth_attempt_secret ON oauth_attempt (org_id, secret_id);

CREATE TABLE provider_setting (
    org_id uuid NOT NULL REFERENCES organisation,
    provider text COLLATE "C" NOT NULL,
    -- JSON, which the store does not read.
    settings text NOT NULL,
    -- The secret of its OAuth client, bound to organisation, provider and version; NULL without one.
    sealed bytea,
    secret_id integer,
    version bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (org_id, provider),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret,
    CHECK ((sealed IS NULL) = (secret_id IS NULL))
);
CREATE INDEX provider_setting_secret ON provider_setting (org_id, secret_id);

-- What an organisation has sent to a provider in the last 66 seconds, newest first: the open second, the 60 of a
-- minute, and 5 for the way from here to the provider.
CREATE TABLE provider_rate (
    org_id uuid NOT NULL REFERENCES organisation,
    provider text COLLATE "C" NOT NULL,
    slots bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[66]),
    tokens bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[66]),
    -- The second of the first slot.
    at bigint NOT NULL DEFAULT 0,
    -- A provider that said "too many" is asked again after this.
    held_until_ms bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (org_id, provider)
) WITH (fillfactor = 50);

-- The last good catalogs; a body is compressed.
CREATE TABLE catalog_snapshot (
    version text COLLATE "C" PRIMARY KEY,
    source text NOT NULL,
    fetched_ms bigint NOT NULL,
    body bytea NOT NULL
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['organisation_secret', 'credential', 'oauth_attempt', 'provider_setting',
        'provider_rate']
    LOOP
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
GRANT SELECT, INSERT, UPDATE, DELETE ON catalog_snapshot TO oc_app, oc_migrate;

-- Whoever rewraps asks which organisations still have a data key under another master key.
CREATE POLICY sched ON organisation_secret FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, key_id) ON organisation_secret TO oc_sched;

CREATE FUNCTION clock_ms() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = public, pg_temp AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- The credential that a turn uses: the user's active one, else the organisation's. With its data key, so that it is
-- one round trip.
CREATE FUNCTION read_credential(p_org uuid, p_provider text, p_user text)
RETURNS TABLE (id text, owner text, provider text, label text, kind text, hint text, sealed bytea, secret_id integer,
    version bigint, expires_ms bigint, active boolean, fault text, created_ms bigint, updated_ms bigint, key_id text,
    wrapped bytea)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT c.id, c.owner, c.provider, c.label, c.kind, c.hint, c.sealed, c.secret_id, c.version,
        c.expires_ms, c.active, c.fault, c.created_ms, c.updated_ms, s.key_id, s.wrapped
    FROM credential c JOIN organisation_secret s ON s.org_id = c.org_id AND s.id = c.secret_id
    WHERE c.org_id = p_org AND c.provider = p_provider AND c.active AND c.owner IN ('', p_user)
    ORDER BY c.owner = '' LIMIT 1;
END $$;

CREATE FUNCTION read_provider_settings(p_org uuid)
RETURNS TABLE (provider text, settings text, sealed bytea, secret_id integer, version bigint, updated_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT p.provider, p.settings, p.sealed, p.secret_id, p.version, p.updated_ms
    FROM provider_setting p WHERE p.org_id = p_org ORDER BY p.provider;
END $$;

-- One process of the cluster refreshes this version of a credential, for p_lease_ms: no transaction is open
-- meanwhile.
CREATE FUNCTION take_refresh(p_org uuid, p_id text, p_version bigint, p_lease_ms bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    UPDATE credential SET refresh_until_ms = clock_ms() + p_lease_ms
    WHERE org_id = p_org AND id = p_id AND version = p_version AND refresh_until_ms <= clock_ms();
    RETURN FOUND;
END $$;

-- Slots, p_by seconds later.
CREATE FUNCTION rate_shift(p_slots bigint[], p_by bigint) RETURNS bigint[]
LANGUAGE sql IMMUTABLE SET search_path = public, pg_temp AS $$
    SELECT CASE WHEN p_by <= 0 THEN p_slots
        WHEN p_by >= 66 THEN array_fill(0::bigint, ARRAY[66])
        ELSE array_fill(0::bigint, ARRAY[p_by::integer]) || p_slots[1:66 - p_by::integer] END
$$;

-- How many milliseconds after p_now_ms slots whose first is the second p_at have room for p_want more; 0: they have.
-- What is more than the whole limit goes alone.
CREATE FUNCTION rate_wait(p_slots bigint[], p_limit bigint, p_want bigint, p_at bigint, p_now_ms bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = public, pg_temp AS $$
DECLARE
    v_over bigint;
BEGIN
    IF p_limit IS NULL THEN
        RETURN 0;
    END IF;
    SELECT sum(n) + least(p_want, p_limit) - p_limit INTO v_over FROM unnest(p_slots) n;
    FOR i IN REVERSE 66 .. 1 LOOP
        EXIT WHEN v_over <= 0;
        v_over := v_over - p_slots[i];
        IF v_over <= 0 THEN
            RETURN greatest((p_at + 67 - i) * 1000 - p_now_ms, 1);
        END IF;
    END LOOP;
    RETURN 0;
END $$;

-- Lets a request to a provider go, or says how many milliseconds to wait before it is asked for again. p_now_ms is
-- for tests; NULL is now.
CREATE FUNCTION take_provider_rate_at(p_org uuid, p_provider text, p_requests bigint, p_tokens_limit bigint,
    p_tokens bigint, p_now_ms bigint)
RETURNS bigint
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    v_row provider_rate;
    v_now bigint;
    v_at bigint;
    v_wait bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT * INTO v_row FROM provider_rate r WHERE r.org_id = p_org AND r.provider = p_provider FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO provider_rate (org_id, provider) VALUES (p_org, p_provider) ON CONFLICT DO NOTHING;
        SELECT * INTO v_row FROM provider_rate r WHERE r.org_id = p_org AND r.provider = p_provider FOR UPDATE;
    END IF;
    -- Read under the lock, so that grants are in the order of their times.
    v_now := coalesce(p_now_ms, clock_ms());
    -- Another server's clock may have been ahead: by a little, then the last second is still open; by more than a
    -- minute, then it was wrong, and what it counted is counted as of now.
    v_at := v_now / 1000;
    IF v_row.at BETWEEN v_at AND v_at + 66 THEN
        v_at := v_row.at;
    END IF;
    v_row.slots := rate_shift(v_row.slots, v_at - v_row.at);
    v_row.tokens := rate_shift(v_row.tokens, v_at - v_row.at);
    v_wait := greatest(least(v_row.held_until_ms - v_now, 3600000),
        rate_wait(v_row.slots, p_requests, 1, v_at, v_now),
        rate_wait(v_row.tokens, p_tokens_limit, p_tokens, v_at, v_now));
    IF v_wait > 0 THEN
        RETURN v_wait;
    END IF;
    v_row.slots[1] := v_row.slots[1] + 1;
    v_row.tokens[1] := v_row.tokens[1] + p_tokens;
    UPDATE provider_rate SET slots = v_row.slots, tokens = v_row.tokens, at = v_at
    WHERE org_id = p_org AND provider = p_provider;
    RETURN 0;
END $$;

CREATE FUNCTION take_provider_rate(p_org uuid, p_provider text, p_requests bigint, p_tokens_limit bigint,
    p_tokens bigint)
RETURNS bigint
LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT take_provider_rate_at(p_org, p_provider, p_requests, p_tokens_limit, p_tokens, NULL)
$$;

-- Nobody of the organisation asks the provider for p_wait_ms (an hour at most): it has said "too many" to one.
CREATE FUNCTION hold_provider(p_org uuid, p_provider text, p_wait_ms bigint) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    INSERT INTO provider_rate AS r (org_id, provider, held_until_ms)
    VALUES (p_org, p_provider, clock_ms() + least(p_wait_ms, 3600000))
    ON CONFLICT (org_id, provider) DO UPDATE SET held_until_ms = greatest(r.held_until_ms, excluded.held_until_ms);
END $$;

-- Keeps a catalog and the two before it.
CREATE FUNCTION put_catalog(p_version text, p_source text, p_fetched_ms bigint, p_body bytea) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO catalog_snapshot AS c (version, source, fetched_ms, body)
    VALUES (p_version, p_source, p_fetched_ms, p_body)
    ON CONFLICT (version) DO UPDATE SET source = excluded.source,
        fetched_ms = greatest(c.fetched_ms, excluded.fetched_ms);
    DELETE FROM catalog_snapshot WHERE version NOT IN (
        SELECT c.version FROM catalog_snapshot c ORDER BY c.fetched_ms DESC, c.version LIMIT 3);
END $$;

REVOKE ALL ON FUNCTION clock_ms(), read_credential(uuid, text, text), read_provider_settings(uuid),
    take_refresh(uuid, text, bigint, bigint), rate_shift(bigint[], bigint),
    rate_wait(bigint[], bigint, bigint, bigint, bigint),
    take_provider_rate_at(uuid, text, bigint, bigint, bigint, bigint),
    take_provider_rate(uuid, text, bigint, bigint, bigint), hold_provider(uuid, text, bigint),
    put_catalog(text, text, bigint, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clock_ms(), read_credential(uuid, text, text), read_provider_settings(uuid),
    take_refresh(uuid, text, bigint, bigint), rate_shift(bigint[], bigint),
    rate_wait(bigint[], bigint, bigint, bigint, bigint),
    take_provider_rate_at(uuid, text, bigint, bigint, bigint, bigint),
    take_provider_rate(uuid, text, bigint, bigint, bigint), hold_provider(uuid, text, bigint),
    put_catalog(text, text, bigint, bytea) TO oc_app, oc_migrate;
RESET ROLE;
