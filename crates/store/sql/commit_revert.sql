-- Commits a staged Revert, of an idle session. 'committed', 'none' (nothing is staged: nothing changes),
-- 'busy', 'staged' (`seq` ids are needed) or 'missing'.
CREATE OR REPLACE FUNCTION commit_revert(
    p_org uuid, p_session text, p_spare text[], p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    needed bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.ready OR h.open AS busy, h.staged_seq, h.next_seq INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF head.busy THEN
        outcome := 'busy';
        RETURN;
    END IF;
    IF head.staged_seq = 0 THEN
        outcome := 'none';
        RETURN;
    END IF;
    needed := commit_staged(p_org, p_session, p_spare, p_stamp, p_now, false);
    outcome := CASE needed WHEN 0 THEN 'committed' ELSE 'staged' END;
    seq := CASE needed WHEN 0 THEN head.next_seq ELSE needed END;
END $$;
