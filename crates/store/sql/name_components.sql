-- Notes that a session names a list of components, and the members of the list; or, without a list, the components of an
-- attempt that has their hashes inline. Each component that was not named is locked; it fails when one is not stored.
CREATE OR REPLACE FUNCTION name_components(p_org uuid, p_number bigint, p_list bytea, p_inline jsonb)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF p_list IS NULL THEN
        INSERT INTO session_component (org_id, incarnation, hash, projector_version)
        SELECT p_org, p_number, decode(c.hash, 'hex'), projector_version()
        FROM jsonb_each_text(p_inline) AS c (name, hash) ORDER BY 3 ON CONFLICT DO NOTHING;
        RETURN;
    END IF;
    INSERT INTO session_component (org_id, incarnation, hash, projector_version)
    VALUES (p_org, p_number, p_list, projector_version());
    INSERT INTO component_member (org_id, list, member)
    SELECT p_org, p_list, decode(m.hash, 'hex')
    FROM request_component c, jsonb_each_text(convert_from(c.bytes, 'UTF8')::jsonb) AS m (name, hash)
    WHERE c.org_id = p_org AND c.hash = p_list ORDER BY 3 ON CONFLICT DO NOTHING;
END $$;
