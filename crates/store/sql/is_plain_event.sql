-- Whether project_plain_events() can fold it: what it writes does not depend on the events beside it.
CREATE OR REPLACE FUNCTION is_plain_event(p_kind text, p_payload text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE p_kind
    WHEN 'turn.replied' THEN p_payload NOT LIKE '%"tool-call"%'
    WHEN 'turn.started' THEN p_payload NOT LIKE '%"notice"%'
    WHEN 'turn.settled' THEN p_payload::json->>'outcome' NOT IN ('lost', 'overflowed')
    ELSE p_kind IN ('prompt.promoted', 'attempt.started', 'attempt.ended', 'drain.ended',
        'retry.scheduled', 'interrupt.requested')
END;
