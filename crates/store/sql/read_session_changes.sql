-- The sessions that commits have changed since a position of session_change, and the position up to which that is known
-- (docs/decisions/0058, 0097). Without a position, or with one that is not believed (it is older than the rows of
-- session_change, or from before a crash of Postgres or of another server): the newest p_limit sessions, and `listed`.
-- Takes no locks.
CREATE OR REPLACE FUNCTION read_session_changes(p_org uuid, p_epoch uuid, p_next_xid text, p_running text[], p_read_ms bigint,
    p_limit bigint, OUT epoch uuid, OUT next_xid text, OUT running text[], OUT read_ms bigint, OUT listed boolean,
    OUT sessions text[], OUT incarnations bigint[], OUT locations text[], OUT firsts bigint[], OUT lasts bigint[],
    OUT gone boolean[])
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- Rows of session_change stay for two hours.
    kept_ms CONSTANT bigint := 100 * 60 * 1000;
    known_xid CONSTANT xid8 := p_next_xid::xid8;
    known_running CONSTANT xid8[] := p_running::xid8[];
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT e.id INTO epoch FROM change_epoch e;
    IF NOT FOUND THEN
        -- Another may name it at the same time. Nobody has a position of the new epoch yet.
        INSERT INTO change_epoch DEFAULT VALUES ON CONFLICT DO NOTHING;
        SELECT e.id INTO epoch FROM change_epoch e;
    END IF;
    read_ms := clock_ms();
    listed := (p_epoch = epoch AND p_read_ms BETWEEN read_ms - kept_ms AND read_ms + 60000
        AND known_xid <= pg_snapshot_xmax(pg_current_snapshot())) IS NOT TRUE;
    -- One statement, so that the position is that of what it reads.
    IF listed THEN
        SELECT pg_snapshot_xmax(pg_current_snapshot())::text, ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot())::text),
            array_agg(r.id), array_agg(r.incarnation), array_agg(r.location_id), array_agg(0::bigint),
            array_agg(r.next_seq - 1), array_agg(false)
        INTO next_xid, running, sessions, incarnations, locations, firsts, lasts, gone
        FROM (SELECT h.id, h.incarnation, h.location_id, h.next_seq FROM session_head h
            WHERE h.org_id = p_org ORDER BY h.id LIMIT p_limit) AS r;
    ELSE
        SELECT pg_snapshot_xmax(pg_current_snapshot())::text, ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot())::text),
            array_agg(r.session_id), array_agg(r.incarnation), array_agg(r.location_id), array_agg(r.first),
            array_agg(r.last), array_agg(r.gone)
        INTO next_xid, running, sessions, incarnations, locations, firsts, lasts, gone
        FROM (SELECT c.session_id, c.incarnation::bigint AS incarnation,
                coalesce(min(c.first) FILTER (WHERE c.first > 0), 0)::bigint AS first, max(c.last)::bigint AS last,
                bool_or(c.gone) AS gone,
                (SELECT h.location_id FROM session_head h WHERE h.org_id = p_org AND h.id = c.session_id
                    AND h.incarnation = c.incarnation) AS location_id
            FROM session_change c
            WHERE c.org_id = p_org AND (c.xid >= known_xid OR c.xid = ANY (known_running))
            GROUP BY c.session_id, c.incarnation ORDER BY c.incarnation) AS r;
    END IF;
    IF sessions IS NULL THEN
        sessions := '{}';
        incarnations := '{}';
        locations := '{}';
        firsts := '{}';
        lasts := '{}';
        gone := '{}';
    END IF;
END $$;
