-- Gives a session a title. Its event's number; NULL without the session.
-- For the build before: edit_session takes its place.
CREATE OR REPLACE FUNCTION rename_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint, p_payload text)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN log_event(p_org, p_session, 'session.renamed', p_event, p_stamp, p_now, p_payload);
END $$;
