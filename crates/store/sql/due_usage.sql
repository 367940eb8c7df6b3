-- The sessions that have events which are not counted: the heads are compared with what is counted. The build before asks it
-- for its position too, where changed_sessions has taken its place.
CREATE OR REPLACE FUNCTION due_usage(p_org uuid, OUT sessions text[], OUT next_xid text, OUT running text[], OUT read_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    read_ms := clock_ms();
    -- One statement, so that the position is that of what it reads.
    SELECT pg_snapshot_xmax(now.seen)::text, ARRAY(SELECT pg_snapshot_xip(now.seen)::text),
        ARRAY(SELECT h.id FROM session_head h
            LEFT JOIN usage_through t ON t.org_id = p_org AND t.incarnation = h.incarnation
            WHERE h.org_id = p_org AND h.next_seq - 1 > coalesce(t.last, 0))
    INTO next_xid, running, sessions FROM (SELECT pg_current_snapshot() AS seen) AS now;
END $$;
