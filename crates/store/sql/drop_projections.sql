-- Drops a session's projections; the caller may replay its events, upcast, through project_events.
CREATE OR REPLACE FUNCTION drop_projections(p_org uuid, p_session text, p_number bigint)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    DELETE FROM session WHERE org_id = p_org AND id = p_session;
    DELETE FROM session_input WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM context_epoch WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM mid_conversation_system_message WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM message WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM part WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM provider_turn WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM provider_attempt WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM session_component WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM left_location WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM ask WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM tool_result WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM session_entry WHERE org_id = p_org AND incarnation = p_number;
    DELETE FROM workspace_change WHERE org_id = p_org AND incarnation = p_number;
END $$;
