-- What the events of one kind name in one field.
CREATE OR REPLACE FUNCTION logged_ids(p_org uuid, p_session text, p_kind text, p_field text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT e.payload::json->>p_field FROM session_event e
    WHERE e.org_id = p_org AND e.session_id = p_session AND e.kind = p_kind
$$;
