-- Creates a session with its first event. Returns 'created', 'exists' (at the same Location, with the same parent)
-- or 'conflict'; with a parent also 'orphan' (no such parent), 'deep' (it would be more than `p_deepest` generations
-- below its root) or 'crowded' (the parent has `p_most` children). 'raced': another caller has just made it, ask again.
-- 'nowhere': there is no such Location.
--
-- Locks the parent's head, if there is a parent, and then the Location's row, so that it is not deleted meanwhile.
CREATE OR REPLACE FUNCTION create_session(
    p_org uuid, p_session text, p_location text, p_event text, p_stamp bigint, p_now bigint, p_payload text,
    p_parent text DEFAULT NULL, p_deepest integer DEFAULT 0, p_most integer DEFAULT 0)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held record;
    depth integer;
    number bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, s.parent_id INTO held FROM session_head h
        JOIN session s ON s.org_id = h.org_id AND s.id = h.id
    WHERE h.org_id = p_org AND h.id = p_session;
    IF FOUND THEN
        RETURN CASE WHEN held.location_id = p_location AND held.parent_id IS NOT DISTINCT FROM p_parent
            THEN 'exists' ELSE 'conflict' END;
    END IF;
    IF p_parent IS NOT NULL THEN
        -- Until we commit, nobody deletes it or gives it another child.
        PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = p_parent FOR UPDATE;
        IF NOT FOUND THEN
            RETURN 'orphan';
        END IF;
        WITH RECURSIVE line AS (
            SELECT s.parent_id FROM session s WHERE s.org_id = p_org AND s.id = p_parent
            UNION ALL
            SELECT s.parent_id FROM session s JOIN line ON s.org_id = p_org AND s.id = line.parent_id
        )
        SELECT count(*) INTO depth FROM line; -- the parent and what is above it
        IF depth > p_deepest THEN
            RETURN 'deep';
        END IF;
        IF (SELECT count(*) FROM session s WHERE s.org_id = p_org AND s.parent_id = p_parent) >= p_most THEN
            RETURN 'crowded';
        END IF;
    END IF;
    PERFORM FROM location l WHERE l.org_id = p_org AND l.id = p_location FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'nowhere';
    END IF;
    number := nextval('session_incarnation');
    INSERT INTO session_head (org_id, id, incarnation, claim, access_gen, location_id, next_seq, last_id)
    VALUES (p_org, p_session, number, number << 32, number << 32, p_location, 1, p_stamp)
    ON CONFLICT (org_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'raced';
    END IF;
    PERFORM log_event(p_org, p_session, 'session.created', p_event, p_stamp, p_now, p_payload);
    RETURN 'created';
END $$;
