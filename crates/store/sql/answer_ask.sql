-- Answers an ask: one event, one commit; and saves `p_patterns` for the session's project. The session is stirred: its next
-- drain goes on with the call. 'answered'; 'same' (this answer stands already), 'conflict' (another one does), 'gone' (its call
-- is settled, or somebody has interrupted the session since it was asked) or 'missing'. Locks the head.
CREATE OR REPLACE FUNCTION answer_ask(
    p_org uuid, p_ask text, p_answer text, p_by text, p_patterns text[], p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT session text, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    asked record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    -- Its session never changes.
    SELECT s.id INTO session FROM ask a JOIN session s ON s.org_id = a.org_id AND s.incarnation = a.incarnation
    WHERE a.org_id = p_org AND a.id = p_ask;
    SELECT h.incarnation, h.location_id, h.interrupt_seq INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = session FOR UPDATE;
    SELECT a.* INTO asked FROM ask a WHERE a.org_id = p_org AND a.id = p_ask AND a.incarnation = head.incarnation;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF asked.status = 'answered' THEN
        SELECT CASE WHEN e.payload::jsonb->'answer' = p_answer::jsonb THEN 'same' ELSE 'conflict' END, e.seq
        INTO outcome, seq FROM session_event e
        WHERE e.org_id = p_org AND e.incarnation = head.incarnation AND e.seq = asked.answered_seq;
        RETURN;
    END IF;
    IF asked.status <> 'pending' OR head.interrupt_seq > asked.asked_seq THEN
        outcome := 'gone';
        RETURN;
    END IF;
    seq := log_event(p_org, session, 'tool.answered', p_event, p_stamp, p_now, json_strip_nulls(json_build_object(
        'call', asked.call_id, 'ask', p_ask, 'answer', p_answer::json, 'by', p_by::json))::text);
    UPDATE session_head h SET asleep = false WHERE h.org_id = p_org AND h.id = session;
    INSERT INTO saved_permission (org_id, project_id, action, pattern, by_key, saved_ms)
    SELECT p_org, s.project_id, asked.action, saved.pattern, p_by::json->>'key', p_now
    FROM session s, unnest(p_patterns) AS saved (pattern)
    WHERE s.org_id = p_org AND s.id = session
    ON CONFLICT DO NOTHING;
    outcome := 'answered';
END $$;
