-- The inputs that a session's log names, of every kind.
CREATE OR REPLACE FUNCTION logged_inputs(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT e.payload::json->>'message' FROM session_event e
    WHERE e.org_id = p_org AND e.session_id = p_session AND e.kind IN ('prompt.admitted', 'control.admitted')
$$;
