-- Drops a session's projections, before its events; the caller may replay these, upcast, through
-- project_events.
CREATE OR REPLACE FUNCTION drop_projections(p_org uuid, p_session text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    DELETE FROM session WHERE org_id = p_org AND id = p_session;
    DELETE FROM session_input WHERE org_id = p_org AND session_id = p_session
        AND id = ANY (ARRAY(SELECT logged_inputs(p_org, p_session)));
    DELETE FROM context_epoch WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM mid_conversation_system_message WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM message WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM part WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM provider_turn WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM provider_attempt WHERE org_id = p_org AND session_id = p_session
        AND id = ANY (ARRAY(SELECT logged_ids(p_org, p_session, 'attempt.started', 'attempt')));
    DELETE FROM tool_result WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM session_entry WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM workspace_change WHERE org_id = p_org AND session_id = p_session;
END $$;
