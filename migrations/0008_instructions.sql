-- What an organisation tells the models of all its sessions, read at each boundary: one statement, so that
-- it is one round trip.
SET LOCAL ROLE oc_owner;

CREATE FUNCTION read_organisation_instructions(p_org uuid)
RETURNS TABLE (text text, updated_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT i.text, i.updated_ms FROM organisation_instructions i WHERE i.org_id = p_org;
END $$;

REVOKE ALL ON FUNCTION read_organisation_instructions(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_organisation_instructions(uuid) TO oc_app, oc_migrate;
RESET ROLE;
