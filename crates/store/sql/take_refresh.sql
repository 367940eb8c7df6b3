-- One process of the cluster refreshes this version of a credential, for p_lease_ms: no transaction is open
-- meanwhile.
CREATE OR REPLACE FUNCTION take_refresh(p_org uuid, p_id text, p_version bigint, p_lease_ms bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    UPDATE credential SET refresh_until_ms = clock_ms() + p_lease_ms
    WHERE org_id = p_org AND id = p_id AND version = p_version AND refresh_until_ms <= clock_ms();
    RETURN FOUND;
END $$;
