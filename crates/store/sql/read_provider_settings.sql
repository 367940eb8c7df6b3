-- The settings of an organisation for its providers.
CREATE OR REPLACE FUNCTION read_provider_settings(p_org uuid)
RETURNS TABLE (provider text, settings text, sealed bytea, secret_id integer, version bigint, updated_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT p.provider, p.settings, p.sealed, p.secret_id, p.version, p.updated_ms
    FROM provider_setting p WHERE p.org_id = p_org ORDER BY p.provider;
END $$;
