-- Folds a batch of events into the projections at once; admission tries the common case first; what every
-- prompt and turn paid for and nothing needed is dropped.
SET LOCAL ROLE oc_owner;

-- What projections say of the projector that wrote them.
CREATE FUNCTION projector_version() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 1::smallint;

-- Folds events into the projections: the first has the number `p_first`, the others follow it without a
-- hole. Gives the rows that folding them one by one gives, wherever a batch begins and ends. Holds only
-- what the events hold: no now(), no random id.
-- A change of what it writes raises projector_version() and wants `opencode-cloud rebuild`.
--
-- A statement costs more than what it does, so what several events of a batch say of one row is written
-- once: the session's at the end, a reply's with its turn's settlement.
CREATE FUNCTION project_events(
    p_org uuid, p_session text, p_first bigint, p_times bigint[], p_kinds text[], p_payloads text[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    projector CONSTANT smallint := projector_version();
    at_seq bigint := p_first - 1;
    at_ms bigint;
    -- The payload, parsed once: json would read the whole text again for every field.
    p jsonb;
    -- The newest promotion, and what else the session is told at the end.
    promoted jsonb;
    ended text;
    touched_ms bigint;
    input bigint := 0;
    output bigint := 0;
    reasoning bigint := 0;
    cache_read bigint := 0;
    cache_write bigint := 0;
    -- A reply whose turn and message are not told its end yet.
    reply_turn text;
    reply_message text;
    reply_finish text;
BEGIN
    FOR i IN 1 .. cardinality(p_kinds) LOOP
        at_seq := at_seq + 1;
        at_ms := p_times[i];
        p := p_payloads[i]::jsonb;
        IF reply_turn <> p->>'turn' AND p_kinds[i] IN ('turn.replied', 'turn.settled') THEN
            UPDATE provider_turn SET status = 'replied', finish = reply_finish
            WHERE org_id = p_org AND id = reply_turn;
            UPDATE message SET finish = reply_finish WHERE org_id = p_org AND id = reply_message;
            reply_turn := NULL;
            reply_finish := NULL;
        END IF;
        -- The most frequent first: each comparison before costs.
        CASE p_kinds[i]
        WHEN 'prompt.promoted' THEN
            UPDATE session_input SET status = 'promoted', promoted_seq = at_seq
            WHERE org_id = p_org AND id = p->>'message';
            INSERT INTO message (org_id, id, session_id, seq, role, agent, provider, model, created_ms,
                completed_ms, projector_version)
            VALUES (p_org, p->>'message', p_session, at_seq, 'user', p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', (p->>'admitted')::bigint, at_ms, projector);
            IF jsonb_array_length(p->'parts') = 1 THEN
                INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
                VALUES (p_org, p#>>'{parts,0,id}', p_session, p->>'message', at_seq, 1, 'text',
                    p#>>'{parts,0,text}', projector);
            ELSE
                INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
                SELECT p_org, item->>'id', p_session, p->>'message', at_seq, place, 'text',
                    item->>'text', projector
                FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place);
            END IF;
            promoted := p;
            touched_ms := at_ms;
        WHEN 'turn.started' THEN
            INSERT INTO provider_turn (org_id, id, session_id, message_id, seq, agent, provider, model,
                epoch, step, status, started_ms, projector_version)
            VALUES (p_org, p->>'turn', p_session, p->>'message', at_seq, p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', (p->>'epoch')::integer, (p->>'step')::integer, 'open', at_ms, projector);
            INSERT INTO message (org_id, id, session_id, seq, role, parent_id, turn_id, agent, provider,
                model, created_ms, projector_version)
            VALUES (p_org, p->>'message', p_session, at_seq, 'assistant', p->>'parent', p->>'turn', p->>'agent',
                p#>>'{model,provider}', p#>>'{model,model}', at_ms, projector);
        WHEN 'attempt.started' THEN
            INSERT INTO provider_attempt (org_id, id, session_id, turn_id, ordinal, seq, wire_version,
                body_hash, epoch, through_seq, components, started_ms, projector_version)
            VALUES (p_org, p->>'attempt', p_session, p->>'turn', (p->>'ordinal')::integer, at_seq,
                (p->>'wire_version')::integer, p->>'body_hash', (p->>'epoch')::integer,
                (p->>'through')::bigint, p_payloads[i]::json->>'components', at_ms, projector);
        WHEN 'attempt.ended' THEN
            UPDATE provider_attempt SET outcome = p->>'outcome', error_code = p#>>'{error,code}',
                error_message = p#>>'{error,message}', input_tokens = (p#>>'{usage,input}')::bigint,
                output_tokens = (p#>>'{usage,output}')::bigint, ended_ms = at_ms
            WHERE org_id = p_org AND id = p->>'attempt';
        WHEN 'turn.replied' THEN
            reply_turn := p->>'turn';
            reply_message := p->>'message';
            reply_finish := p->>'finish';
            INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
            SELECT p_org, item->>'id', p_session, reply_message, at_seq, place, item->>'type',
                item->>'text', projector
            FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place)
            WHERE item->>'type' IN ('text', 'reasoning')
            ON CONFLICT (org_id, id) DO UPDATE SET place = excluded.place, text = excluded.text;
            IF p_payloads[i] LIKE '%"tool-call"%' THEN
                UPDATE part SET place = parts.place
                FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place)
                WHERE part.org_id = p_org AND part.session_id = p_session AND part.message_id = reply_message
                    AND item->>'type' = 'tool-call' AND part.call_id = item->>'call';
            END IF;
        WHEN 'turn.settled' THEN
            UPDATE provider_turn SET status = 'settled', finish = coalesce(reply_finish, finish),
                outcome = p->>'outcome', error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                input_tokens = (p#>>'{usage,input}')::bigint, output_tokens = (p#>>'{usage,output}')::bigint,
                reasoning_tokens = (p#>>'{usage,reasoning}')::bigint,
                cache_read_tokens = (p#>>'{usage,cache_read}')::bigint,
                cache_write_tokens = (p#>>'{usage,cache_write}')::bigint, ended_ms = at_ms
            WHERE org_id = p_org AND id = p->>'turn';
            IF p->>'outcome' = 'lost' THEN
                -- Nothing of it was durable: the next turn starts over with a message of its own.
                DELETE FROM message WHERE org_id = p_org AND id = p->>'message';
            ELSE
                UPDATE message SET completed_ms = at_ms, finish = coalesce(reply_finish, finish),
                    error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                    input_tokens = (p#>>'{usage,input}')::bigint, output_tokens = (p#>>'{usage,output}')::bigint,
                    reasoning_tokens = (p#>>'{usage,reasoning}')::bigint,
                    cache_read_tokens = (p#>>'{usage,cache_read}')::bigint,
                    cache_write_tokens = (p#>>'{usage,cache_write}')::bigint
                WHERE org_id = p_org AND id = p->>'message';
            END IF;
            reply_turn := NULL;
            reply_finish := NULL;
            input := input + (p#>>'{usage,input}')::bigint;
            output := output + (p#>>'{usage,output}')::bigint;
            reasoning := reasoning + (p#>>'{usage,reasoning}')::bigint;
            cache_read := cache_read + (p#>>'{usage,cache_read}')::bigint;
            cache_write := cache_write + (p#>>'{usage,cache_write}')::bigint;
            touched_ms := at_ms;
        WHEN 'drain.ended' THEN
            ended := p->>'outcome';
            touched_ms := at_ms;
        WHEN 'tool.called' THEN
            INSERT INTO tool_result (org_id, id, session_id, turn_id, message_id, part_id, provider_call, tool,
                class, state, bodies, arguments, called_seq, called_ms, projector_version)
            VALUES (p_org, p#>>'{intent,call}', p_session, p->>'turn', p->>'message', p#>>'{intent,part}',
                p#>>'{intent,provider_call}', p#>>'{intent,tool}', p->>'class', p->>'state',
                CASE p->>'state' WHEN 'started' THEN 1 ELSE 0 END, p#>>'{intent,arguments}', at_seq, at_ms,
                projector);
            INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, call_id, projector_version)
            VALUES (p_org, p#>>'{intent,part}', p_session, p->>'message', at_seq, 1000000, 'tool',
                p#>>'{intent,call}', projector);
        WHEN 'tool.settled' THEN
            UPDATE tool_result SET state = 'settled', settled_seq = at_seq, outcome = p->>'outcome',
                title = p->>'title', structured = p->>'structured', bounded_text = p->>'output',
                managed_path = p->>'managed_path', truncated = (p->>'truncated')::boolean,
                started_ms = (p->>'started')::bigint, ended_ms = (p->>'ended')::bigint
            WHERE org_id = p_org AND id = p->>'call';
        WHEN 'tool.started' THEN
            UPDATE tool_result SET state = 'started', bodies = (p->>'body')::integer
            WHERE org_id = p_org AND id = p->>'call';
        WHEN 'text.checkpointed' THEN
            INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
            SELECT p_org, p->>'part', p_session, turn.message_id, at_seq, 0, 'text', p->>'text',
                projector
            FROM provider_turn AS turn WHERE turn.org_id = p_org AND turn.id = p->>'turn'
            ON CONFLICT (org_id, id) DO UPDATE SET text = part.text || excluded.text;
        WHEN 'session.created' THEN
            INSERT INTO session (org_id, id, project_id, location_id, directory, title, agent, provider,
                model, created_ms, updated_ms, projector_version)
            VALUES (p_org, p_session, p->>'project', p->>'location', p->>'directory', p->>'title',
                p->>'agent', p#>>'{model,provider}', p#>>'{model,model}', at_ms, at_ms, projector);
        WHEN 'prompt.admitted' THEN
            INSERT INTO session_input (org_id, id, session_id, delivery, status, payload, admitted_seq,
                admitted_ms, projector_version)
            VALUES (p_org, p->>'message', p_session, p->>'delivery', 'admitted', p_payloads[i], at_seq,
                at_ms, projector);
        WHEN 'epoch.started' THEN
            INSERT INTO context_epoch (org_id, session_id, epoch, baseline, snapshot, started_seq,
                projector_version)
            VALUES (p_org, p_session, (p->>'epoch')::integer, p->>'baseline', p->>'snapshot', at_seq, projector);
        WHEN 'context.updated' THEN
            INSERT INTO mid_conversation_system_message (org_id, id, session_id, rendered, seq,
                projector_version)
            VALUES (p_org, p->>'message', p_session, p->>'rendered', at_seq, projector);
            UPDATE context_epoch SET snapshot = p->>'snapshot'
            WHERE org_id = p_org AND session_id = p_session AND epoch =
                (SELECT max(epoch) FROM context_epoch WHERE org_id = p_org AND session_id = p_session);
        WHEN 'notice.recorded' THEN
            INSERT INTO message (org_id, id, session_id, seq, role, created_ms, completed_ms, finish,
                projector_version)
            VALUES (p_org, p->>'message', p_session, at_seq, 'notice', at_ms, at_ms, p->>'kind', projector);
            INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
            VALUES (p_org, 'prt' || substr(p->>'message', 4), p_session, p->>'message', at_seq, 1, 'text',
                p->>'text', projector);
        WHEN 'retry.scheduled', 'interrupt.requested' THEN
            NULL; -- read from the log; no projection shows them
        ELSE
            RAISE EXCEPTION 'event kind % has no projection', p_kinds[i] USING ERRCODE = 'OC002';
        END CASE;
    END LOOP;
    IF reply_turn IS NOT NULL THEN
        UPDATE provider_turn SET status = 'replied', finish = reply_finish
        WHERE org_id = p_org AND id = reply_turn;
        UPDATE message SET finish = reply_finish WHERE org_id = p_org AND id = reply_message;
    END IF;
    IF touched_ms IS NOT NULL THEN
        UPDATE session SET updated_ms = touched_ms, outcome = coalesce(ended, outcome),
            agent = coalesce(promoted->>'agent', agent),
            provider = coalesce(promoted#>>'{model,provider}', provider),
            model = coalesce(promoted#>>'{model,model}', model),
            input_tokens = input_tokens + input, output_tokens = output_tokens + output,
            reasoning_tokens = reasoning_tokens + reasoning, cache_read_tokens = cache_read_tokens + cache_read,
            cache_write_tokens = cache_write_tokens + cache_write
        WHERE org_id = p_org AND id = p_session;
    END IF;
END $$;

-- One event; called by a rebuild of the version before, and where a single event is the rule.
CREATE OR REPLACE FUNCTION project_event(
    p_org uuid, p_session text, p_seq bigint, p_kind text, p_time bigint, p_payload text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM project_events(p_org, p_session, p_seq, ARRAY[p_time], ARRAY[p_kind], ARRAY[p_payload]);
END $$;

-- Admits a prompt: one row, one event, one commit. 'admitted', 'retry' (the first row stands),
-- 'conflict' (the id is another message's) or 'missing'. `seq` is the admission's number.
CREATE OR REPLACE FUNCTION admit_prompt(
    p_org uuid, p_session text, p_message text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text,
    OUT outcome text, OUT seq bigint, OUT location text, OUT admitted_ms bigint, OUT payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- An assignment costs less than a statement.
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    first record;
BEGIN
    -- The common case in one statement: a new id. An id that is taken leaves the head as it is. That of a
    -- reply or a notice counts as taken: it would stop every later promotion on its key.
    UPDATE session_head SET next_seq = next_seq + 1, pending = pending + 1,
        wake_seq = CASE WHEN p_wake THEN next_seq ELSE wake_seq END,
        last_id = greatest(last_id, p_stamp)
    WHERE org_id = p_org AND id = p_session
        AND NOT EXISTS (SELECT FROM session_input i WHERE i.org_id = p_org AND i.id = p_message)
        AND NOT EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message)
    RETURNING next_seq - 1, location_id INTO seq, location;
    IF FOUND THEN
        INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
        VALUES (p_org, p_session, seq, p_event, 'prompt.admitted', 1, p_now, p_payload);
        -- As project_events does it, without reading the payload. A racing admission of the same id fails
        -- here on the key, whole; the caller asks again and finds the other.
        INSERT INTO session_input (org_id, id, session_id, delivery, status, payload, admitted_seq,
            admitted_ms, projector_version)
        VALUES (p_org, p_message, p_session, p_delivery, 'admitted', p_payload, seq, p_now,
            projector_version());
        outcome := 'admitted';
        admitted_ms := p_now;
        payload := p_payload;
        RETURN;
    END IF;
    SELECT i.session_id, i.delivery, i.payload, i.admitted_seq, i.admitted_ms INTO first
    FROM session_input i WHERE i.org_id = p_org AND i.id = p_message;
    IF FOUND THEN
        outcome := CASE WHEN first.session_id = p_session AND first.delivery = p_delivery
            AND first.payload::json->>'digest' = p_digest THEN 'retry' ELSE 'conflict' END;
        seq := first.admitted_seq;
        SELECT h.location_id INTO location FROM session_head h
        WHERE h.org_id = p_org AND h.id = first.session_id;
        admitted_ms := first.admitted_ms;
        payload := first.payload;
    ELSIF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message) THEN
        outcome := 'conflict';
    ELSE
        outcome := 'missing';
    END IF;
END $$;

-- Postgres reads a CHECK's text anew for every statement that writes its table: a tenth of a turn's CPU.
-- Only the projector writes these columns, from types that have no other values.
ALTER TABLE session_input DROP CONSTRAINT session_input_delivery_check,
    DROP CONSTRAINT session_input_status_check;
ALTER TABLE message DROP CONSTRAINT message_role_check;
ALTER TABLE part DROP CONSTRAINT part_kind_check;
ALTER TABLE provider_turn DROP CONSTRAINT provider_turn_status_check;
ALTER TABLE tool_result DROP CONSTRAINT tool_result_class_check, DROP CONSTRAINT tool_result_state_check;

-- Only a deletion and a rebuild looked for a session's inputs and attempts by these, and every prompt and
-- request paid for them. The log names both.
DROP INDEX session_input_session, provider_attempt_session;

-- What the events of one kind name in one field.
CREATE FUNCTION logged_ids(p_org uuid, p_session text, p_kind text, p_field text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT e.payload::json->>p_field FROM session_event e
    WHERE e.org_id = p_org AND e.session_id = p_session AND e.kind = p_kind
$$;

-- Every projected row of a session as text, in a fixed order: what a rebuild must reproduce.
CREATE OR REPLACE FUNCTION projection_rows(p_org uuid, p_session text)
RETURNS TABLE (name text, line text) LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT 'session', t::text FROM session t WHERE org_id = p_org AND id = p_session
    UNION ALL SELECT 'session_input', t::text FROM session_input t
        WHERE org_id = p_org AND session_id = p_session
            AND id = ANY (ARRAY(SELECT logged_ids(p_org, p_session, 'prompt.admitted', 'message')))
    UNION ALL SELECT 'context_epoch', t::text FROM context_epoch t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'mid_conversation_system_message', t::text FROM mid_conversation_system_message t
        WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'message', t::text FROM message t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'part', t::text FROM part t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'provider_turn', t::text FROM provider_turn t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'provider_attempt', t::text FROM provider_attempt t
        WHERE org_id = p_org AND session_id = p_session
            AND id = ANY (ARRAY(SELECT logged_ids(p_org, p_session, 'attempt.started', 'attempt')))
    UNION ALL SELECT 'tool_result', t::text FROM tool_result t WHERE org_id = p_org AND session_id = p_session
    ORDER BY 1, 2
$$;

-- Drops a session's projections, before its events; the caller may replay these, upcast, through
-- project_events.
CREATE OR REPLACE FUNCTION drop_projections(p_org uuid, p_session text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    DELETE FROM session WHERE org_id = p_org AND id = p_session;
    DELETE FROM session_input WHERE org_id = p_org AND session_id = p_session
        AND id = ANY (ARRAY(SELECT logged_ids(p_org, p_session, 'prompt.admitted', 'message')));
    DELETE FROM context_epoch WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM mid_conversation_system_message WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM message WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM part WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM provider_turn WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM provider_attempt WHERE org_id = p_org AND session_id = p_session
        AND id = ANY (ARRAY(SELECT logged_ids(p_org, p_session, 'attempt.started', 'attempt')));
    DELETE FROM tool_result WHERE org_id = p_org AND session_id = p_session;
END $$;

REVOKE ALL ON FUNCTION projector_version, project_events, logged_ids FROM PUBLIC;
GRANT EXECUTE ON FUNCTION projector_version, project_events, logged_ids TO oc_app, oc_migrate;
RESET ROLE;
