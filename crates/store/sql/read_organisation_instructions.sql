-- The instructions of an organisation, read at each boundary: one statement, so that it is one round trip.
CREATE OR REPLACE FUNCTION read_organisation_instructions(p_org uuid)
RETURNS TABLE (text text, updated_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT i.text, i.updated_ms FROM organisation_instructions i WHERE i.org_id = p_org;
END $$;
