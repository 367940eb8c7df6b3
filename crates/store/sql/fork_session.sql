-- Creates a session that begins with the conversation of another: its head and all its events, with their own
-- times. The other is not locked, and its log stays as it is up to `p_through`. 'created', 'exists' (a Fork of
-- the same session, before the same message), 'conflict', 'orphan' (there is no parent with such a log),
-- 'nowhere' (there is no such Location) or 'raced' (ask again).
CREATE OR REPLACE FUNCTION fork_session(
    p_org uuid, p_session text, p_parent text, p_through bigint, p_location text, p_stamp bigint, p_ids text[],
    p_kinds text[], p_versions integer[], p_times bigint[], p_payloads text[])
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held record;
    n CONSTANT integer := cardinality(p_ids);
    number CONSTANT bigint := nextval('session_incarnation');
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT e.kind, e.payload::json->>'parent' AS parent, e.payload::json->>'before' AS before INTO held
    FROM session_head h LEFT JOIN session_event e ON e.incarnation = h.incarnation AND e.seq = 2
    WHERE h.org_id = p_org AND h.id = p_session;
    IF FOUND THEN
        RETURN CASE WHEN held.kind = 'session.forked' AND held.parent = p_parent
            AND held.before IS NOT DISTINCT FROM p_payloads[2]::json->>'before' THEN 'exists' ELSE 'conflict' END;
    END IF;
    IF NOT EXISTS (SELECT FROM session_head h
        WHERE h.org_id = p_org AND h.id = p_parent AND h.next_seq > p_through) THEN
        RETURN 'orphan';
    END IF;
    PERFORM FROM location l WHERE l.org_id = p_org AND l.id = p_location FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'nowhere';
    END IF;
    INSERT INTO session_head (org_id, id, incarnation, claim, access_gen, location_id, next_seq, last_id)
    VALUES (p_org, p_session, number, number << 32, number << 32, p_location, 1 + n, p_stamp)
    ON CONFLICT (org_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'raced';
    END IF;
    PERFORM append_events(p_org, array_fill(p_session, ARRAY[n]), array_fill(number, ARRAY[n]),
        ARRAY(SELECT generate_series(1, n)), p_times, array_fill(NULL::bigint, ARRAY[n]), p_ids, p_kinds, p_versions,
        p_payloads, array_fill(NULL::bigint, ARRAY[n]));
    RETURN 'created';
END $$;
