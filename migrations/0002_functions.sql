-- The durable transitions that are one statement of the service: admission, interrupt, a drain's start,
-- a drain's append, a new token. And the projector, which all of them and a rebuild go through.
--
-- Lock order everywhere: the Location's advisory lock, session_head (several: ascending id), the rest.
-- Each function is VOLATILE plpgsql, so that under READ COMMITTED every statement in it sees what was
-- committed while the one before it waited for a lock.
SET LOCAL ROLE oc_owner;

-- The advisory lock of a Location. Two Locations with one number merely share a lock.
CREATE FUNCTION location_lock(p_org uuid, p_location text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(p_location, ('x' || left(replace(p_org::text, '-', ''), 15))::bit(60)::bigint);

-- Folds one event into the projections. Holds only what the event holds: no now(), no random id.
-- A change of what it writes raises the constant below and wants `opencode-cloud rebuild`.
CREATE FUNCTION project_event(
    p_org uuid, p_session text, p_seq bigint, p_kind text, p_time bigint, p_payload text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    projector CONSTANT smallint := 1;
    -- Parsed once: json would read the whole text again for every field.
    p CONSTANT jsonb := p_payload::jsonb;
    u jsonb;
BEGIN
    CASE p_kind
    WHEN 'session.created' THEN
        INSERT INTO session (org_id, id, project_id, location_id, directory, title, agent, provider,
            model, created_ms, updated_ms, projector_version)
        VALUES (p_org, p_session, p->>'project', p->>'location', p->>'directory', p->>'title',
            p->>'agent', p#>>'{model,provider}', p#>>'{model,model}', p_time, p_time, projector);
    WHEN 'prompt.admitted' THEN
        INSERT INTO session_input (org_id, id, session_id, delivery, status, payload, admitted_seq,
            admitted_ms, projector_version)
        VALUES (p_org, p->>'message', p_session, p->>'delivery', 'admitted', p_payload, p_seq,
            p_time, projector);
    WHEN 'prompt.promoted' THEN
        UPDATE session_input SET status = 'promoted', promoted_seq = p_seq
        WHERE org_id = p_org AND id = p->>'message';
        INSERT INTO message (org_id, id, session_id, seq, role, agent, provider, model, created_ms,
            completed_ms, projector_version)
        VALUES (p_org, p->>'message', p_session, p_seq, 'user', p->>'agent', p#>>'{model,provider}',
            p#>>'{model,model}', (p->>'admitted')::bigint, p_time, projector);
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', p_session, p->>'message', p_seq, place, 'text', item->>'text', projector
        FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place);
        UPDATE session SET agent = p->>'agent', provider = p#>>'{model,provider}',
            model = p#>>'{model,model}', updated_ms = p_time
        WHERE org_id = p_org AND id = p_session;
    WHEN 'epoch.started' THEN
        INSERT INTO context_epoch (org_id, session_id, epoch, baseline, snapshot, started_seq, projector_version)
        VALUES (p_org, p_session, (p->>'epoch')::integer, p->>'baseline', p->>'snapshot', p_seq, projector);
    WHEN 'context.updated' THEN
        INSERT INTO mid_conversation_system_message (org_id, id, session_id, rendered, seq, projector_version)
        VALUES (p_org, p->>'message', p_session, p->>'rendered', p_seq, projector);
        UPDATE context_epoch SET snapshot = p->>'snapshot'
        WHERE org_id = p_org AND session_id = p_session AND epoch =
            (SELECT max(epoch) FROM context_epoch WHERE org_id = p_org AND session_id = p_session);
    WHEN 'turn.started' THEN
        INSERT INTO provider_turn (org_id, id, session_id, message_id, seq, agent, provider, model,
            epoch, step, status, started_ms, projector_version)
        VALUES (p_org, p->>'turn', p_session, p->>'message', p_seq, p->>'agent', p#>>'{model,provider}',
            p#>>'{model,model}', (p->>'epoch')::integer, (p->>'step')::integer, 'open', p_time, projector);
        INSERT INTO message (org_id, id, session_id, seq, role, parent_id, turn_id, agent, provider,
            model, created_ms, projector_version)
        VALUES (p_org, p->>'message', p_session, p_seq, 'assistant', p->>'parent', p->>'turn', p->>'agent',
            p#>>'{model,provider}', p#>>'{model,model}', p_time, projector);
    WHEN 'attempt.started' THEN
        INSERT INTO provider_attempt (org_id, id, session_id, turn_id, ordinal, seq, wire_version,
            body_hash, epoch, through_seq, components, started_ms, projector_version)
        VALUES (p_org, p->>'attempt', p_session, p->>'turn', (p->>'ordinal')::integer, p_seq,
            (p->>'wire_version')::integer, p->>'body_hash', (p->>'epoch')::integer,
            (p->>'through')::bigint, p_payload::json->>'components', p_time, projector);
    WHEN 'attempt.ended' THEN
        UPDATE provider_attempt SET outcome = p->>'outcome', error_code = p#>>'{error,code}',
            error_message = p#>>'{error,message}', input_tokens = (p#>>'{usage,input}')::bigint,
            output_tokens = (p#>>'{usage,output}')::bigint, ended_ms = p_time
        WHERE org_id = p_org AND id = p->>'attempt';
    WHEN 'text.checkpointed' THEN
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, p->>'part', p_session, turn.message_id, p_seq, 0, 'text', p->>'text', projector
        FROM provider_turn AS turn WHERE turn.org_id = p_org AND turn.id = p->>'turn'
        ON CONFLICT (org_id, id) DO UPDATE SET text = part.text || excluded.text;
    WHEN 'tool.called' THEN
        INSERT INTO tool_result (org_id, id, session_id, turn_id, message_id, part_id, provider_call, tool,
            class, state, bodies, arguments, called_seq, called_ms, projector_version)
        VALUES (p_org, p#>>'{intent,call}', p_session, p->>'turn', p->>'message', p#>>'{intent,part}',
            p#>>'{intent,provider_call}', p#>>'{intent,tool}', p->>'class', p->>'state',
            CASE p->>'state' WHEN 'started' THEN 1 ELSE 0 END, p#>>'{intent,arguments}', p_seq, p_time,
            projector);
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, call_id, projector_version)
        VALUES (p_org, p#>>'{intent,part}', p_session, p->>'message', p_seq, 1000000, 'tool',
            p#>>'{intent,call}', projector);
    WHEN 'tool.started' THEN
        UPDATE tool_result SET state = 'started', bodies = (p->>'body')::integer
        WHERE org_id = p_org AND id = p->>'call';
    WHEN 'tool.settled' THEN
        UPDATE tool_result SET state = 'settled', settled_seq = p_seq, outcome = p->>'outcome',
            title = p->>'title', structured = p->>'structured', bounded_text = p->>'output',
            managed_path = p->>'managed_path', truncated = (p->>'truncated')::boolean,
            started_ms = (p->>'started')::bigint, ended_ms = (p->>'ended')::bigint
        WHERE org_id = p_org AND id = p->>'call';
    WHEN 'turn.replied' THEN
        UPDATE provider_turn SET status = 'replied', finish = p->>'finish'
        WHERE org_id = p_org AND id = p->>'turn';
        UPDATE message SET finish = p->>'finish' WHERE org_id = p_org AND id = p->>'message';
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', p_session, p->>'message', p_seq, place, item->>'type', item->>'text', projector
        FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place)
        WHERE item->>'type' IN ('text', 'reasoning')
        ON CONFLICT (org_id, id) DO UPDATE SET place = excluded.place, text = excluded.text;
        IF p_payload LIKE '%"tool-call"%' THEN
            UPDATE part SET place = parts.place
            FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place)
            WHERE part.org_id = p_org AND part.session_id = p_session AND part.message_id = p->>'message'
                AND item->>'type' = 'tool-call' AND part.call_id = item->>'call';
        END IF;
    WHEN 'turn.settled' THEN
        u := p->'usage';
        UPDATE provider_turn SET status = 'settled', outcome = p->>'outcome',
            error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
            input_tokens = (u->>'input')::bigint, output_tokens = (u->>'output')::bigint,
            reasoning_tokens = (u->>'reasoning')::bigint, cache_read_tokens = (u->>'cache_read')::bigint,
            cache_write_tokens = (u->>'cache_write')::bigint, ended_ms = p_time
        WHERE org_id = p_org AND id = p->>'turn';
        IF p->>'outcome' = 'lost' THEN
            -- Nothing of it was durable: the next turn starts over with a message of its own.
            DELETE FROM message WHERE org_id = p_org AND id = p->>'message';
        ELSE
            UPDATE message SET completed_ms = p_time, error_code = p#>>'{error,code}',
                error_message = p#>>'{error,message}', input_tokens = (u->>'input')::bigint,
                output_tokens = (u->>'output')::bigint, reasoning_tokens = (u->>'reasoning')::bigint,
                cache_read_tokens = (u->>'cache_read')::bigint,
                cache_write_tokens = (u->>'cache_write')::bigint
            WHERE org_id = p_org AND id = p->>'message';
        END IF;
        UPDATE session SET updated_ms = p_time, input_tokens = input_tokens + (u->>'input')::bigint,
            output_tokens = output_tokens + (u->>'output')::bigint,
            reasoning_tokens = reasoning_tokens + (u->>'reasoning')::bigint,
            cache_read_tokens = cache_read_tokens + (u->>'cache_read')::bigint,
            cache_write_tokens = cache_write_tokens + (u->>'cache_write')::bigint
        WHERE org_id = p_org AND id = p_session;
    WHEN 'notice.recorded' THEN
        INSERT INTO message (org_id, id, session_id, seq, role, created_ms, completed_ms, finish, projector_version)
        VALUES (p_org, p->>'message', p_session, p_seq, 'notice', p_time, p_time, p->>'kind', projector);
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        VALUES (p_org, 'prt' || substr(p->>'message', 4), p_session, p->>'message', p_seq, 1, 'text',
            p->>'text', projector);
    WHEN 'drain.ended' THEN
        UPDATE session SET outcome = p->>'outcome', updated_ms = p_time
        WHERE org_id = p_org AND id = p_session;
    WHEN 'retry.scheduled', 'interrupt.requested' THEN
        NULL; -- read from the log; no projection shows them
    ELSE
        RAISE EXCEPTION 'event kind % has no projection', p_kind USING ERRCODE = 'OC002';
    END CASE;
END $$;

-- Creates a session with its first event. 'created', 'exists' (same Location) or 'conflict'.
CREATE FUNCTION create_session(
    p_org uuid, p_session text, p_location text, p_event text, p_stamp bigint, p_now bigint, p_payload text)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held text;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    INSERT INTO session_head (org_id, id, location_id, next_seq, last_id)
    VALUES (p_org, p_session, p_location, 2, p_stamp)
    ON CONFLICT (org_id, id) DO NOTHING;
    IF NOT FOUND THEN
        SELECT location_id INTO held FROM session_head WHERE org_id = p_org AND id = p_session;
        RETURN CASE WHEN held = p_location THEN 'exists' ELSE 'conflict' END;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    VALUES (p_org, p_session, 1, p_event, 'session.created', 1, p_now, p_payload);
    PERFORM project_event(p_org, p_session, 1, 'session.created', p_now, p_payload);
    RETURN 'created';
END $$;

-- Admits a prompt: one row, one event, one commit. 'admitted', 'retry' (the first row stands),
-- 'conflict' (the id is another message's) or 'missing'. `seq` is the admission's number.
CREATE FUNCTION admit_prompt(
    p_org uuid, p_session text, p_message text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text,
    OUT outcome text, OUT seq bigint, OUT location text, OUT admitted_ms bigint, OUT payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    first record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT i.session_id, i.delivery, i.payload, i.admitted_seq, i.admitted_ms, h.location_id INTO first
    FROM session_input i JOIN session_head h ON h.org_id = i.org_id AND h.id = i.session_id
    WHERE i.org_id = p_org AND i.id = p_message;
    IF FOUND THEN
        outcome := CASE WHEN first.session_id = p_session AND first.delivery = p_delivery
            AND first.payload::json->>'digest' = p_digest THEN 'retry' ELSE 'conflict' END;
        seq := first.admitted_seq;
        location := first.location_id;
        admitted_ms := first.admitted_ms;
        payload := first.payload;
        RETURN;
    END IF;
    -- A client that reuses the id of a reply or a notice would stop every later promotion on its key.
    IF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message) THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    UPDATE session_head SET next_seq = next_seq + 1, pending = pending + 1,
        wake_seq = CASE WHEN p_wake THEN next_seq ELSE wake_seq END,
        last_id = greatest(last_id, p_stamp)
    WHERE org_id = p_org AND id = p_session
    RETURNING next_seq - 1, location_id INTO seq, location;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    -- A racing admission of the same id fails here on the key; the caller asks again and finds it.
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    VALUES (p_org, p_session, seq, p_event, 'prompt.admitted', 1, p_now, p_payload);
    PERFORM project_event(p_org, p_session, seq, 'prompt.admitted', p_now, p_payload);
    outcome := 'admitted';
    admitted_ms := p_now;
    payload := p_payload;
END $$;

-- Asks a session to stop. Applies to the open turn, the open drain, or the wakes before it; a session
-- with none of them is left as it is ('idle'). 'missing' when there is none.
CREATE FUNCTION interrupt_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    open_turn text;
    target json;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.open, h.ready, h.next_seq, h.location_id INTO head
    FROM session_head h WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF NOT head.ready THEN
        outcome := 'idle';
        RETURN;
    END IF;
    seq := head.next_seq;
    SELECT t.id INTO open_turn FROM provider_turn t
    WHERE t.org_id = p_org AND t.session_id = p_session AND t.status <> 'settled'
    ORDER BY t.seq DESC LIMIT 1;
    IF NOT head.open THEN
        target := '{"type":"parked"}';
    ELSIF open_turn IS NULL THEN
        target := '{"type":"drain"}';
    ELSE
        target := json_build_object('type', 'turn', 'turn', open_turn);
    END IF;
    UPDATE session_head SET next_seq = next_seq + 1, interrupt_seq = next_seq, parked_seq = next_seq,
        last_id = greatest(last_id, p_stamp)
    WHERE org_id = p_org AND id = p_session;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    VALUES (p_org, p_session, seq, p_event, 'interrupt.requested', 1, p_now,
        json_build_object('target', target)::text);
    outcome := 'applied';
END $$;

-- A new token's first act at a Location: nothing starts there before this commits, and every drain of
-- an earlier holder is fenced by it. False when a higher token has been here.
CREATE FUNCTION raise_fence(p_org uuid, p_location text, p_token bigint)
RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(location_lock(p_org, p_location));
    UPDATE location SET fence = p_token WHERE org_id = p_org AND id = p_location AND fence < p_token;
    IF NOT FOUND THEN
        RETURN EXISTS (SELECT FROM location WHERE org_id = p_org AND id = p_location AND fence = p_token);
    END IF;
    PERFORM FROM session_head
    WHERE org_id = p_org AND location_id = p_location AND (open OR pending > 0)
    ORDER BY id FOR UPDATE;
    UPDATE session_head SET claim = claim + 1
    WHERE org_id = p_org AND location_id = p_location AND (open OR pending > 0);
    RETURN true;
END $$;

-- A drain's start: takes the Location's lock shared, finds its token still the fence, claims the head.
-- 'claimed', 'superseded' (a higher token has been here), 'idle' (not ready), 'missing'.
CREATE FUNCTION start_drain(
    p_org uuid, p_session text, p_location text, p_token bigint,
    OUT outcome text, OUT claim bigint, OUT next_seq bigint, OUT last_id bigint, OUT interrupt_seq bigint,
    OUT wake_seq bigint, OUT parked_seq bigint, OUT pending integer, OUT was_open boolean,
    OUT handed_over boolean, OUT recoveries smallint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head session_head%ROWTYPE;
    fence_now bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    -- A hint that came late must take no transaction id. A wake that commits after this look sends its own.
    IF EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session
        AND h.location_id = p_location AND NOT h.ready) THEN
        outcome := 'idle';
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(location_lock(p_org, p_location));
    SELECT fence INTO fence_now FROM location WHERE org_id = p_org AND id = p_location;
    IF fence_now IS DISTINCT FROM p_token THEN
        outcome := 'superseded';
        RETURN;
    END IF;
    SELECT * INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session AND h.location_id = p_location FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF NOT head.ready THEN
        outcome := 'idle';
        RETURN;
    END IF;
    outcome := 'claimed';
    was_open := head.open;
    handed_over := head.handed_over;
    -- A takeover of work that was left open counts, unless its holder handed it over.
    recoveries := head.recoveries + (CASE WHEN head.open AND NOT head.handed_over THEN 1 ELSE 0 END);
    UPDATE session_head h SET claim = h.claim + 1, open = true, handed_over = false,
        recoveries = start_drain.recoveries
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.claim INTO start_drain.claim;
    next_seq := head.next_seq;
    last_id := head.last_id;
    interrupt_seq := head.interrupt_seq;
    wake_seq := head.wake_seq;
    parked_seq := head.parked_seq;
    pending := head.pending;
END $$;

-- Locks the head and proves the claim, for a write that must decide first. No row: fenced.
CREATE FUNCTION prove_claim(
    p_org uuid, p_session text, p_claim bigint,
    OUT next_seq bigint, OUT last_id bigint, OUT interrupt_seq bigint, OUT wake_seq bigint,
    OUT parked_seq bigint, OUT pending integer)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT h.next_seq, h.last_id, h.interrupt_seq, h.wake_seq, h.parked_seq, h.pending
    FROM session_head h WHERE h.org_id = p_org AND h.id = p_session AND h.claim = p_claim FOR UPDATE;
END $$;

-- Appends a drain's events: one statement locks, proves the claim and allocates the numbers from
-- `p_first` on. `p_end`: 'keep' the drain, 'close' it, 'park' (close, and let what is pending wait for a
-- new wake), or 'hand-over' (stays open for the next holder).
-- `p_progress` clears the recovery counter. NULL: fenced, nothing written.
CREATE FUNCTION append_events(
    p_org uuid, p_session text, p_claim bigint, p_first bigint, p_promoted integer, p_stamp bigint,
    p_end text, p_progress boolean, p_now bigint, p_ids text[], p_kinds text[], p_versions integer[],
    p_payloads text[])
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := coalesce(array_length(p_ids, 1), 0);
    left_over integer;
BEGIN
    UPDATE session_head SET next_seq = next_seq + n, pending = pending - p_promoted,
        last_id = greatest(last_id, p_stamp),
        open = (p_end IN ('keep', 'hand-over')),
        handed_over = (p_end = 'hand-over'),
        claim = claim + (CASE p_end WHEN 'keep' THEN 0 ELSE 1 END),
        -- With nothing left, the wakes are spent: an input admitted later without one stays put.
        parked_seq = CASE WHEN p_end = 'park' OR (p_end = 'close' AND pending = p_promoted)
            THEN greatest(parked_seq, wake_seq) ELSE parked_seq END,
        recoveries = CASE WHEN p_progress OR p_end IN ('close', 'park') THEN 0 ELSE recoveries END
    WHERE org_id = p_org AND id = p_session AND claim = p_claim AND next_seq = p_first
    RETURNING pending INTO left_over;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload)
    SELECT p_org, p_session, p_first + i - 1, p_ids[i], p_kinds[i], p_versions[i], p_now, p_claim, p_payloads[i]
    FROM generate_series(1, n) AS i;
    FOR i IN 1 .. n LOOP
        PERFORM project_event(p_org, p_session, p_first + i - 1, p_kinds[i], p_now, p_payloads[i]);
    END LOOP;
    IF p_end = 'close' AND left_over > 0 THEN
        -- What was only stored does not start another drain. The head is locked: nobody admits meanwhile.
        UPDATE session_head h SET parked_seq = greatest(h.parked_seq, h.wake_seq)
        WHERE h.org_id = p_org AND h.id = p_session AND NOT EXISTS (
            SELECT FROM session_input i WHERE i.org_id = p_org AND i.session_id = p_session
                AND i.status = 'admitted' AND i.admitted_seq > h.parked_seq
                AND (i.payload::json->>'wake')::boolean);
    END IF;
    RETURN p_first + n - 1;
END $$;

-- A page of a session's log in one statement, for gateways, which read on with every commit.
CREATE FUNCTION read_log(p_org uuid, p_session text, p_after bigint, p_limit bigint)
RETURNS TABLE (seq bigint, id text, kind text, version integer, time_ms bigint, claim bigint, payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT e.seq, e.id, e.kind, e.version, e.time_ms, e.claim, e.payload
        FROM session_event e WHERE e.org_id = p_org AND e.session_id = p_session AND e.seq > p_after
        ORDER BY e.seq LIMIT p_limit;
    -- Every session has its first event, so only an empty page needs the question.
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

-- Every projected row of a session as text, in a fixed order: what a rebuild must reproduce.
CREATE FUNCTION projection_rows(p_org uuid, p_session text)
RETURNS TABLE (name text, line text) LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT 'session', t::text FROM session t WHERE org_id = p_org AND id = p_session
    UNION ALL SELECT 'session_input', t::text FROM session_input t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'context_epoch', t::text FROM context_epoch t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'mid_conversation_system_message', t::text FROM mid_conversation_system_message t
        WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'message', t::text FROM message t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'part', t::text FROM part t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'provider_turn', t::text FROM provider_turn t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'provider_attempt', t::text FROM provider_attempt t WHERE org_id = p_org AND session_id = p_session
    UNION ALL SELECT 'tool_result', t::text FROM tool_result t WHERE org_id = p_org AND session_id = p_session
    ORDER BY 1, 2
$$;

-- Drops a session's projections; the caller replays its events, upcast, through project_event.
CREATE FUNCTION drop_projections(p_org uuid, p_session text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    DELETE FROM session WHERE org_id = p_org AND id = p_session;
    DELETE FROM session_input WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM context_epoch WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM mid_conversation_system_message WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM message WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM part WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM provider_turn WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM provider_attempt WHERE org_id = p_org AND session_id = p_session;
    DELETE FROM tool_result WHERE org_id = p_org AND session_id = p_session;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO oc_app, oc_migrate;
RESET ROLE;
