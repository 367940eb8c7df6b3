-- read_log() for several: the rows of each, in order. They share the bytes of one page. No row for one without news, or whose event
-- `p_after` has another id than in `p_after_ids`; whether it is there at all is for its caller to ask.
CREATE OR REPLACE FUNCTION read_logs(p_org uuid, p_sessions text[], p_incarnations bigint[], p_after bigint[],
    p_limit bigint, p_after_ids text[] DEFAULT NULL)
RETURNS TABLE (place bigint, seq bigint, id text, kind text, version integer, time_ms bigint, claim bigint,
    payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
BEGIN
    RETURN QUERY SELECT a.place, e.seq::bigint, e.id, e.kind, e.version, e.time_ms, e.claim, e.payload
    FROM unnest(p_sessions, p_incarnations, p_after, p_after_ids) WITH ORDINALITY
        AS a (session, incarnation, after, after_id, place)
    -- LIMIT keeps each of them a look-up by its key.
    CROSS JOIN LATERAL (SELECT h.incarnation FROM session_head h WHERE h.org_id = p_org AND h.id = a.session
        AND a.incarnation IN (0, h.incarnation)
        AND (a.after_id IS NULL OR a.after_id = (SELECT k.id FROM session_event k WHERE k.org_id = p_org
            AND k.incarnation = h.incarnation AND k.seq = a.after)) LIMIT 1) AS h
    CROSS JOIN LATERAL (SELECT w.*, sum(octet_length(w.payload)) OVER (ORDER BY w.seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (SELECT * FROM session_event s WHERE s.org_id = p_org AND s.incarnation = h.incarnation
            AND s.seq > a.after ORDER BY s.seq LIMIT p_limit) AS w) AS e
    WHERE coalesce(e.bytes_before, 0) < page_bytes() / cardinality(p_sessions);
END $$;
