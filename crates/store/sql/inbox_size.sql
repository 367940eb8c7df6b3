-- How many inputs wait in the inbox of a session, and how many bytes their events have. The caller has locked the head, so that
-- nothing is admitted or promoted meanwhile. Reads no text: Postgres keeps the length of a long one beside it.
CREATE OR REPLACE FUNCTION inbox_size(p_org uuid, p_number bigint, OUT inputs bigint, OUT bytes bigint)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT count(*), coalesce(sum(octet_length(e.payload)), 0)
    FROM session_input i JOIN session_event e ON e.org_id = i.org_id AND e.incarnation = i.incarnation
        AND e.seq = i.admitted_seq
    WHERE i.org_id = p_org AND i.incarnation = p_number AND i.status = 'admitted'
$$;
