-- The sessions that may have events which are not counted, and the position of session_change up to which that is known
-- (docs/decisions/0058, 0085). Without a position, or with one that is older than the rows of session_change, from before
-- a crash of Postgres or of another server, the heads are compared with what is counted.
CREATE OR REPLACE FUNCTION changed_sessions(p_org uuid, OUT sessions text[], OUT next_xid text, OUT running text[], OUT read_ms bigint, OUT epoch uuid)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- Rows of session_change stay for two hours.
    kept_ms CONSTANT bigint := 100 * 60 * 1000;
    known record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT e.id INTO epoch FROM change_epoch e;
    IF NOT FOUND THEN
        -- Another may name it at the same time. Nobody has a position of the new epoch yet.
        INSERT INTO change_epoch DEFAULT VALUES ON CONFLICT DO NOTHING;
        SELECT e.id INTO epoch FROM change_epoch e;
    END IF;
    SELECT c.next_xid, c.running, c.read_ms, c.epoch INTO known FROM usage_cursor c WHERE c.org_id = p_org;
    read_ms := clock_ms();
    IF known.epoch = epoch AND known.read_ms BETWEEN read_ms - kept_ms AND read_ms
        AND known.next_xid <= pg_snapshot_xmax(pg_current_snapshot()) THEN
        -- One statement, so that the position is that of what it reads.
        SELECT pg_snapshot_xmax(now.seen)::text, ARRAY(SELECT pg_snapshot_xip(now.seen)::text),
            ARRAY(SELECT DISTINCT c.session_id FROM session_change c
                WHERE c.org_id = p_org AND (c.xid >= known.next_xid OR c.xid = ANY (known.running)) AND NOT c.gone)
        INTO next_xid, running, sessions FROM (SELECT pg_current_snapshot() AS seen) AS now;
    ELSE
        -- A commit after this statement is above the position.
        SELECT pg_snapshot_xmax(now.seen)::text, ARRAY(SELECT pg_snapshot_xip(now.seen)::text),
            ARRAY(SELECT h.id FROM session_head h
                LEFT JOIN usage_through t ON t.org_id = p_org AND t.incarnation = h.incarnation
                WHERE h.org_id = p_org AND h.next_seq - 1 > coalesce(t.last, 0))
        INTO next_xid, running, sessions FROM (SELECT pg_current_snapshot() AS seen) AS now;
    END IF;
END $$;
