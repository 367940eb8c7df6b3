-- What the planner must know before anything is stored: an organisation has many sessions, and a session
-- has many rows.
--
-- Without statistics it takes `org_id = …` alone for as selective as a whole key, and an index that merely
-- begins with org_id for as good as the key's: every statement on a fresh database would read all rows of
-- the organisation, with a plan that connections keep. So some rows are put in, analysed, and taken out;
-- their statistics stay until the tables have rows of their own to analyse.
DO $$
DECLARE
    o CONSTANT uuid := 'ffffffff-0000-4000-8000-000000000000';
    -- 20 sessions of 50 rows each.
    sessions CONSTANT integer := 20;
    rows_each CONSTANT integer := 50;
BEGIN
    INSERT INTO organisation VALUES (o, 'statistics', 0);
    INSERT INTO project VALUES (o, 'p', '/', 0);
    INSERT INTO location (org_id, id, project_id, kind, directory, created_ms)
    SELECT o, 'l' || n, 'p', 'local', '/' || n, 0 FROM generate_series(1, sessions) AS n;
    INSERT INTO session_head (org_id, id, location_id)
    SELECT o, 's' || n, 'l' || (n % sessions + 1) FROM generate_series(1, sessions * rows_each) AS n;
    INSERT INTO session (org_id, id, project_id, location_id, directory, title, agent, created_ms, updated_ms,
        projector_version)
    SELECT o, 's' || n, 'p' || n % sessions, 'l', '/', '', '', n, n, 0
    FROM generate_series(1, sessions * rows_each) AS n;
    CREATE TEMPORARY TABLE seed ON COMMIT DROP AS
    SELECT 's' || s AS session, 'r' || s || '-' || n AS row, s * rows_each + n AS seq
    FROM generate_series(1, sessions) AS s, generate_series(1, rows_each) AS n;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    SELECT o, session, seq, row, 'kind', 1, seq, row FROM seed;
    INSERT INTO session_input (org_id, id, session_id, delivery, status, payload, admitted_seq, admitted_ms,
        projector_version)
    SELECT o, row, session, 'steer', CASE seq % 50 WHEN 0 THEN 'admitted' ELSE 'promoted' END, row, seq, seq, 0
    FROM seed;
    INSERT INTO context_epoch SELECT o, session, seq, '', '', seq, 0 FROM seed;
    INSERT INTO mid_conversation_system_message SELECT o, row, session, '', seq, 0 FROM seed;
    INSERT INTO message (org_id, id, session_id, seq, role, created_ms, projector_version)
    SELECT o, row, session, seq, 'user', seq, 0 FROM seed;
    INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
    SELECT o, row, session, row, seq, 1, 'text', row, 0 FROM seed;
    INSERT INTO provider_turn (org_id, id, session_id, message_id, seq, agent, provider, model, epoch, step,
        status, started_ms, projector_version)
    SELECT o, row, session, row, seq, '', '', '', 1, 1, 'settled', seq, 0 FROM seed;
    INSERT INTO provider_attempt (org_id, id, session_id, turn_id, ordinal, seq, wire_version, body_hash, epoch,
        through_seq, components, started_ms, projector_version)
    SELECT o, row, session, row, 1, seq, 1, row, 1, seq, '{}', seq, 0 FROM seed;
    INSERT INTO tool_result (org_id, id, session_id, turn_id, message_id, part_id, provider_call, tool, class,
        state, bodies, arguments, called_seq, called_ms, projector_version)
    SELECT o, row, session, row, row, row, row, 'read', 'pure', 'settled', 1, '{}', seq, seq, 0 FROM seed;
END $$;
SET LOCAL ROLE oc_owner;
ANALYZE organisation, project, location, session_head, session, session_event, session_input, context_epoch,
    mid_conversation_system_message, message, part, provider_turn, provider_attempt, tool_result;
RESET ROLE;
DO $$
DECLARE
    o CONSTANT uuid := 'ffffffff-0000-4000-8000-000000000000';
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tool_result', 'provider_attempt', 'provider_turn', 'part', 'message',
        'mid_conversation_system_message', 'context_epoch', 'session_input', 'session_event', 'session',
        'session_head', 'location', 'project', 'organisation']
    LOOP
        EXECUTE format('DELETE FROM %I WHERE org_id = $1', name) USING o;
    END LOOP;
END $$;
