-- The credential that a turn uses: the user's active one, else the organisation's. With its data key, so that it is
-- one round trip.
CREATE OR REPLACE FUNCTION read_credential(p_org uuid, p_provider text, p_user text)
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
