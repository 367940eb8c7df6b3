-- Whether what was admitted at `p_admitted` waits for the end of the Revert that was staged last at `p_staged` (0:
-- none is), or that was staged before it at another message. The log is read only for what is older than that.
CREATE OR REPLACE FUNCTION is_held(p_org uuid, p_number bigint, p_staged bigint, p_admitted bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT p_staged > 0 AND (p_admitted > p_staged OR (
        -- It was admitted while one was staged,
        EXISTS (SELECT FROM (
                SELECT e.kind FROM session_event e
                WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq < p_admitted
                    AND e.kind IN ('revert.staged', 'revert.cleared', 'revert.committed')
                ORDER BY e.seq DESC LIMIT 1) AS last
            WHERE last.kind = 'revert.staged')
        -- which has become this one.
        AND NOT EXISTS (SELECT FROM session_event e
            WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq > p_admitted AND e.seq < p_staged
                AND e.kind IN ('revert.cleared', 'revert.committed'))))
$$;
