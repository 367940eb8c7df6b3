-- Deletes at most `p_limit` packs of one Location that is gone, and says how many; NULL when no such Location has packs
-- any more. Then it forgets Locations that have been gone for `p_memory`.
CREATE OR REPLACE FUNCTION collect_packs(p_org uuid, p_limit integer, p_memory bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    place text;
    deleted integer;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT g.id INTO place FROM gone_location g WHERE g.org_id = p_org AND g.packs ORDER BY g.id LIMIT 1;
    IF NOT FOUND THEN
        DELETE FROM gone_location g WHERE g.org_id = p_org AND g.gone_ms <= clock_ms() - p_memory;
        RETURN NULL;
    END IF;
    -- No session can be there, so none is added.
    DELETE FROM workspace_pack w WHERE w.org_id = p_org AND w.location_id = place
        AND (w.token, w.ordinal) IN (SELECT o.token, o.ordinal FROM workspace_pack o
            WHERE o.org_id = p_org AND o.location_id = place ORDER BY o.token, o.ordinal LIMIT p_limit);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted < p_limit THEN
        UPDATE gone_location g SET packs = false WHERE g.org_id = p_org AND g.id = place;
    END IF;
    RETURN deleted;
END $$;
