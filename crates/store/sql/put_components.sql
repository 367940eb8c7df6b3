-- Stores components of requests that are not there yet.
CREATE OR REPLACE FUNCTION put_components(p_org uuid, p_hashes bytea[], p_bytes bytea[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF cardinality(p_hashes) > 0 THEN
        -- In one order, so that two writers never wait for one another.
        INSERT INTO request_component (org_id, hash, bytes)
        SELECT p_org, new.hash, new.bytes FROM unnest(p_hashes, p_bytes) AS new (hash, bytes)
        ORDER BY new.hash ON CONFLICT DO NOTHING;
    END IF;
END $$;
