-- Makes `p_token` the fence of its Location, and fences every drain of an earlier holder. The fence before it: who
-- held the Location last knows by it that its files are those. `p_token` itself when it is the fence already; NULL
-- when a higher one has been here, or there is no such Location.
CREATE OR REPLACE FUNCTION take_fence(p_org uuid, p_location text, p_token bigint)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    known bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(location_lock(p_org, p_location));
    SELECT fence INTO known FROM location WHERE org_id = p_org AND id = p_location;
    IF known >= p_token THEN
        RETURN CASE WHEN known = p_token THEN known END;
    END IF;
    UPDATE location SET fence = p_token WHERE org_id = p_org AND id = p_location;
    PERFORM FROM session_head h
    WHERE h.org_id = p_org AND h.location_id = p_location AND (h.open OR h.pending > 0)
        AND h.id IN (SELECT s.id FROM session s WHERE s.org_id = p_org AND s.location_id = p_location)
    ORDER BY h.id FOR UPDATE;
    UPDATE session_head h SET claim = claim + 1
    WHERE h.org_id = p_org AND h.location_id = p_location AND (h.open OR h.pending > 0)
        AND h.id IN (SELECT s.id FROM session s WHERE s.org_id = p_org AND s.location_id = p_location);
    RETURN known;
END $$;
