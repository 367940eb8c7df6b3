-- Makes the head of an imported session, and stores what its log names: components of requests, and the snapshot that its
-- Location begins with, whose pack has the content of every snapshot of the log. The log follows in the same transaction.
-- 'created' with the session's number, 'exists' (a session has the id), 'nowhere' (there is no such Location) or 'used'
-- (there are files to begin with, and it is managed and has others).
--
-- Locks the Location's row, so that it is not deleted meanwhile.
CREATE OR REPLACE FUNCTION import_session(
    p_org uuid, p_session text, p_location text, p_events bigint, p_stamp bigint, p_hashes bytea[], p_components bytea[],
    p_tree text, p_ordinal bigint, p_pack text, p_bytes bigint, p_now bigint, OUT outcome text, OUT number bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    place record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        outcome := 'exists';
        RETURN;
    END IF;
    SELECT l.kind, l.fence, l.seed_tree INTO place FROM location l
    WHERE l.org_id = p_org AND l.id = p_location FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'nowhere';
        RETURN;
    END IF;
    IF p_tree IS NOT NULL AND place.kind = 'managed' AND (place.fence > 0 OR place.seed_tree IS NOT NULL OR EXISTS (
        SELECT FROM workspace_pack w WHERE w.org_id = p_org AND w.location_id = p_location) OR EXISTS (
        SELECT FROM session s WHERE s.org_id = p_org AND s.location_id = p_location)) THEN
        outcome := 'used';
        RETURN;
    END IF;
    number := nextval('session_incarnation');
    INSERT INTO session_head (org_id, id, incarnation, claim, access_gen, location_id, next_seq, last_id)
    VALUES (p_org, p_session, number, number << 32, number << 32, p_location, 1 + p_events, p_stamp)
    ON CONFLICT (org_id, id) DO NOTHING;
    IF NOT FOUND THEN
        outcome := 'exists';
        RETURN;
    END IF;
    -- It was used where it was made.
    INSERT INTO usage_through (incarnation, org_id, first, last) VALUES (number, p_org, p_events, p_events);
    PERFORM put_components(p_org, p_hashes, p_components);
    IF p_tree IS NOT NULL THEN
        -- Under token 0, which no worker has: each capture of this service is newer.
        INSERT INTO workspace_pack (org_id, location_id, token, ordinal, tree, parent, pack, bytes, created_ms)
        VALUES (p_org, p_location, 0, greatest(p_ordinal, 1 + (SELECT coalesce(max(w.ordinal), 0) FROM workspace_pack w
            WHERE w.org_id = p_org AND w.location_id = p_location AND w.token = 0)), p_tree, NULL, p_pack, p_bytes, p_now);
        -- Its first holder makes the files. A directory of a machine has its own.
        UPDATE location l SET seed_location = p_location, seed_tree = p_tree
        WHERE l.org_id = p_org AND l.id = p_location AND place.kind = 'managed';
    END IF;
    outcome := 'created';
END $$;
