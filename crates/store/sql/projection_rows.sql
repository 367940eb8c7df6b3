-- Every projected row of a session as text, in a fixed order: what a rebuild must reproduce.
CREATE OR REPLACE FUNCTION projection_rows(p_org uuid, p_session text)
RETURNS TABLE (name text, line text) LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    number CONSTANT bigint := (SELECT h.incarnation FROM session_head h WHERE h.org_id = p_org AND h.id = p_session);
BEGIN
    RETURN QUERY
    SELECT 'session', t::text FROM session t WHERE org_id = p_org AND id = p_session
    UNION ALL SELECT 'session_input', t::text FROM session_input t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'context_epoch', t::text FROM context_epoch t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'mid_conversation_system_message', t::text FROM mid_conversation_system_message t
        WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'message', t::text FROM message t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'part', t::text FROM part t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'provider_turn', t::text FROM provider_turn t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'provider_attempt', t::text FROM provider_attempt t
        WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'session_component', t::text FROM session_component t
        WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'left_location', t::text FROM left_location t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'ask', t::text FROM ask t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'tool_result', t::text FROM tool_result t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'session_entry', t::text FROM session_entry t WHERE org_id = p_org AND incarnation = number
    UNION ALL SELECT 'workspace_change', t::text FROM workspace_change t
        WHERE org_id = p_org AND incarnation = number
    ORDER BY 1, 2;
END $$;
