-- look_at_drain() without a lock for several: a row each. They share the bytes of one page.
CREATE OR REPLACE FUNCTION look_at_drains(
    p_org uuid, p_sessions text[], p_locations text[], p_tokens bigint[], p_incarnations bigint[],
    p_knowns bigint[], p_limit bigint, p_known_ids text[] DEFAULT NULL)
RETURNS TABLE (place bigint, outcome text, claim bigint, next_seq bigint, last_id bigint, interrupt_seq bigint,
    was_open boolean, handed_over boolean, recoveries smallint, after bigint, ids text[], kinds text[],
    versions integer[], times bigint[], claims bigint[], payloads text[])
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
BEGIN
    RETURN QUERY
    SELECT a.place,
        CASE WHEN h.id IS NULL THEN 'missing' WHEN NOT h.ready THEN 'idle'
            WHEN l.id IS NULL THEN 'superseded' ELSE 'ready' END,
        h.claim, h.next_seq, h.last_id, h.interrupt_seq, h.open, h.handed_over, h.recoveries,
        known.seq,
        log.ids, log.kinds, log.versions, log.times, log.claims, log.payloads
    FROM unnest(p_sessions, p_locations, p_tokens, p_incarnations, p_knowns, p_known_ids) WITH ORDINALITY
        AS a (session, location, token, incarnation, known, known_id, place)
    LEFT JOIN LATERAL (SELECT * FROM session_head s WHERE s.org_id = p_org AND s.id = a.session
        AND s.location_id = a.location LIMIT 1) AS h ON true
    LEFT JOIN LATERAL (SELECT * FROM location s WHERE s.org_id = p_org AND s.id = a.location
        AND s.fence = a.token LIMIT 1) AS l ON true
    -- Up to where the caller knows this log; 0 when it knows another one.
    LEFT JOIN LATERAL (SELECT CASE WHEN a.incarnation = h.incarnation AND a.known < h.next_seq
            AND (a.known_id IS NULL OR a.known_id = (SELECT k.id FROM session_event k WHERE k.org_id = p_org
                AND k.incarnation = h.incarnation AND k.seq = a.known)) THEN a.known
        ELSE 0 END AS seq) AS known ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(e.id) AS ids, array_agg(e.kind) AS kinds, array_agg(e.version) AS versions,
            array_agg(e.time_ms) AS times, array_agg(e.claim) AS claims, array_agg(e.payload) AS payloads
        FROM (SELECT w.*, sum(octet_length(w.payload)) OVER (ORDER BY w.seq
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
            FROM (SELECT * FROM session_event s WHERE s.org_id = p_org AND s.incarnation = h.incarnation
                AND s.seq > known.seq AND s.seq < h.next_seq
                ORDER BY s.seq LIMIT p_limit) AS w) AS e
        WHERE coalesce(e.bytes_before, 0) < page_bytes() / cardinality(p_sessions)
    ) AS log ON h.ready AND l.id IS NOT NULL;
END $$;
