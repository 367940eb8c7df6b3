-- Publishes the settings that the holder of a Location has read in its files. False if its token is not the fence (any
-- more), or there is no such Location: then nothing is written. Locks the Location's row, so that the fence does not move
-- before the commit, and then the row of its settings.
CREATE OR REPLACE FUNCTION publish_settings(
    p_org uuid, p_location text, p_token bigint, p_bytes text, p_hash text, p_now bigint)
RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM FROM location l WHERE l.org_id = p_org AND l.id = p_location AND l.fence = p_token FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO location_settings AS s (org_id, location_id, bytes, hash, token, observed_ms)
    VALUES (p_org, p_location, p_bytes, p_hash, p_token, p_now)
    ON CONFLICT (org_id, location_id) DO UPDATE SET bytes = excluded.bytes, hash = excluded.hash,
        token = excluded.token, observed_ms = excluded.observed_ms;
    RETURN true;
END $$;
