-- What sessions have beyond prompts and turns: controls in the inbox, cancelled and changed inputs, wakes
-- without input, context entries, names, parents, compactions, titles, and what all of it cost.
SET LOCAL ROLE oc_owner;

-- `prompt`, `synthetic` (no user wrote it) or a control's name.
ALTER TABLE session_input ADD COLUMN kind text NOT NULL DEFAULT 'prompt',
    -- The newest wake for it: 0 for what was only stored. It starts a drain while it is above the head's
    -- parked_seq.
    ADD COLUMN wake_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN parent_id text COLLATE "C",
    -- Somebody gave it its title, or a model did: none is generated.
    ADD COLUMN titled boolean NOT NULL DEFAULT false,
    -- When the compaction that runs began.
    ADD COLUMN compacting_ms bigint,
    ADD COLUMN cost_nanos bigint NOT NULL DEFAULT 0;
-- Most sessions have no parent, and pay nothing for it.
CREATE INDEX session_parent ON session (org_id, parent_id) WHERE parent_id IS NOT NULL;
-- Set when no user wrote it: what it is, for people.
ALTER TABLE message ADD COLUMN synthetic text, ADD COLUMN cost_nanos bigint NOT NULL DEFAULT 0;
-- A compaction and a title are turns of their own kinds; `reason` says why a compaction began.
ALTER TABLE provider_turn ADD COLUMN kind text NOT NULL DEFAULT 'turn', ADD COLUMN reason text,
    ADD COLUMN cost_nanos bigint NOT NULL DEFAULT 0;
ALTER TABLE provider_attempt ADD COLUMN cost_nanos bigint;

-- A projection: what clients have set as context of a session.
CREATE TABLE session_entry (
    org_id uuid NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- JSON text, the client's bytes.
    value text NOT NULL,
    seq bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, session_id, key)
);

-- Instructions of an organisation for all its sessions: the layer above its projects' files.
CREATE TABLE organisation_instructions (
    org_id uuid PRIMARY KEY REFERENCES organisation,
    text text NOT NULL,
    updated_ms bigint NOT NULL
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['session_entry', 'organisation_instructions'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_migrate, oc_app', name);
    END LOOP;
END $$;

RESET ROLE;
-- Only what is pending can still start a drain.
UPDATE session_input SET wake_seq = admitted_seq WHERE status = 'admitted' AND (payload::json->>'wake')::boolean;
SET LOCAL ROLE oc_owner;

CREATE OR REPLACE FUNCTION projector_version() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 2::smallint;

-- Folds events into the projections: the first has the number `p_first`, the others follow it without a
-- hole. Gives the rows that folding them one by one gives, wherever a batch begins and ends. Holds only
-- what the events hold: no now(), no random id.
-- A change of what it writes raises projector_version() and wants `opencode-cloud rebuild`.
--
-- A statement costs more than what it does, so what several events of a batch say of one row is written
-- once: the session's at the end, a reply's with its turn's settlement.
CREATE OR REPLACE FUNCTION project_events(
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
    cost bigint := 0;
    -- What the event at hand says that was used: it goes into several rows.
    u_input bigint;
    u_output bigint;
    u_reasoning bigint;
    u_cache_read bigint;
    u_cache_write bigint;
    u_cost bigint;
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
                completed_ms, synthetic, projector_version)
            VALUES (p_org, p->>'message', p_session, at_seq, 'user', p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', (p->>'admitted')::bigint, at_ms, p->>'synthetic', projector);
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
                output_tokens = (p#>>'{usage,output}')::bigint, cost_nanos = (p#>>'{usage,cost}')::bigint,
                ended_ms = at_ms
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
            u_input := (p#>>'{usage,input}')::bigint;
            u_output := (p#>>'{usage,output}')::bigint;
            u_reasoning := (p#>>'{usage,reasoning}')::bigint;
            u_cache_read := (p#>>'{usage,cache_read}')::bigint;
            u_cache_write := (p#>>'{usage,cache_write}')::bigint;
            u_cost := coalesce((p#>>'{usage,cost}')::bigint, 0);
            UPDATE provider_turn SET status = 'settled', finish = coalesce(reply_finish, finish),
                outcome = p->>'outcome', error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                input_tokens = u_input, output_tokens = u_output, reasoning_tokens = u_reasoning,
                cache_read_tokens = u_cache_read, cache_write_tokens = u_cache_write, cost_nanos = u_cost,
                ended_ms = at_ms
            WHERE org_id = p_org AND id = p->>'turn';
            IF p->>'outcome' IN ('lost', 'overflowed') THEN
                -- Nothing of it was durable: the next turn starts over with a message of its own.
                DELETE FROM message WHERE org_id = p_org AND id = p->>'message';
            ELSE
                UPDATE message SET completed_ms = at_ms, finish = coalesce(reply_finish, finish),
                    error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                    input_tokens = u_input, output_tokens = u_output, reasoning_tokens = u_reasoning,
                    cache_read_tokens = u_cache_read, cache_write_tokens = u_cache_write, cost_nanos = u_cost
                WHERE org_id = p_org AND id = p->>'message';
            END IF;
            reply_turn := NULL;
            reply_finish := NULL;
            input := input + u_input;
            output := output + u_output;
            reasoning := reasoning + u_reasoning;
            cache_read := cache_read + u_cache_read;
            cache_write := cache_write + u_cache_write;
            cost := cost + u_cost;
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
            INSERT INTO session (org_id, id, project_id, location_id, directory, title, titled, parent_id, agent,
                provider, model, created_ms, updated_ms, projector_version)
            VALUES (p_org, p_session, p->>'project', p->>'location', p->>'directory', p->>'title',
                coalesce((p->>'named')::boolean, false), p->>'parent', p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', at_ms, at_ms, projector);
        WHEN 'prompt.admitted' THEN
            INSERT INTO session_input (org_id, id, session_id, kind, delivery, status, payload, admitted_seq,
                admitted_ms, wake_seq, projector_version)
            VALUES (p_org, p->>'message', p_session,
                CASE WHEN p ? 'synthetic' THEN 'synthetic' ELSE 'prompt' END, p->>'delivery', 'admitted',
                p_payloads[i], at_seq, at_ms, CASE WHEN (p->>'wake')::boolean THEN at_seq ELSE 0 END, projector);
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
        WHEN 'session.renamed' THEN
            UPDATE session SET title = p->>'title', titled = true WHERE org_id = p_org AND id = p_session;
            touched_ms := at_ms;
        WHEN 'title.started' THEN
            INSERT INTO provider_turn (org_id, id, session_id, message_id, seq, kind, agent, provider, model,
                epoch, step, status, started_ms, projector_version)
            VALUES (p_org, p->>'turn', p_session, p->>'message', at_seq, 'title', p->>'agent',
                p#>>'{model,provider}', p#>>'{model,model}', 0, 0, 'open', at_ms, projector);
        WHEN 'compaction.started' THEN
            INSERT INTO provider_turn (org_id, id, session_id, message_id, seq, kind, reason, agent, provider,
                model, epoch, step, status, started_ms, projector_version)
            VALUES (p_org, p->>'turn', p_session, p->>'message', at_seq, 'compaction', p->>'reason', p->>'agent',
                p#>>'{model,provider}', p#>>'{model,model}', (p->>'epoch')::integer, 0, 'open', at_ms, projector);
            UPDATE session SET compacting_ms = at_ms WHERE org_id = p_org AND id = p_session;
        WHEN 'compaction.ended', 'title.ended' THEN
            u_input := (p#>>'{usage,input}')::bigint;
            u_output := (p#>>'{usage,output}')::bigint;
            u_reasoning := (p#>>'{usage,reasoning}')::bigint;
            u_cache_read := (p#>>'{usage,cache_read}')::bigint;
            u_cache_write := (p#>>'{usage,cache_write}')::bigint;
            u_cost := coalesce((p#>>'{usage,cost}')::bigint, 0);
            UPDATE provider_turn SET status = 'settled', outcome = p->>'outcome', error_code = p#>>'{error,code}',
                error_message = p#>>'{error,message}', input_tokens = u_input, output_tokens = u_output,
                reasoning_tokens = u_reasoning, cache_read_tokens = u_cache_read,
                cache_write_tokens = u_cache_write, cost_nanos = u_cost, ended_ms = at_ms
            WHERE org_id = p_org AND id = p->>'turn';
            IF p_kinds[i] = 'compaction.ended' THEN
                UPDATE session SET compacting_ms = NULL WHERE org_id = p_org AND id = p_session;
                IF p->>'outcome' = 'completed' THEN
                    INSERT INTO message (org_id, id, session_id, seq, role, turn_id, agent, provider, model,
                        created_ms, completed_ms, finish, input_tokens, output_tokens, reasoning_tokens,
                        cache_read_tokens, cache_write_tokens, cost_nanos, projector_version)
                    SELECT p_org, turn.message_id, p_session, at_seq, 'checkpoint', turn.id, turn.agent,
                        turn.provider, turn.model, turn.started_ms, at_ms, turn.reason, u_input, u_output,
                        u_reasoning, u_cache_read, u_cache_write, u_cost, projector
                    FROM provider_turn AS turn WHERE turn.org_id = p_org AND turn.id = p->>'turn';
                    INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
                    VALUES (p_org, 'prt' || substr(p->>'message', 4), p_session, p->>'message', at_seq, 1, 'text',
                        p->>'checkpoint', projector);
                END IF;
            END IF;
            input := input + u_input;
            output := output + u_output;
            reasoning := reasoning + u_reasoning;
            cache_read := cache_read + u_cache_read;
            cache_write := cache_write + u_cache_write;
            cost := cost + u_cost;
            touched_ms := at_ms;
        WHEN 'control.admitted' THEN
            INSERT INTO session_input (org_id, id, session_id, kind, delivery, status, payload, admitted_seq,
                admitted_ms, wake_seq, projector_version)
            VALUES (p_org, p->>'message', p_session, p#>>'{control,type}', p->>'delivery', 'admitted',
                p_payloads[i], at_seq, at_ms, CASE WHEN (p->>'wake')::boolean THEN at_seq ELSE 0 END, projector);
        WHEN 'control.delivered' THEN
            UPDATE session_input SET status = 'promoted', promoted_seq = at_seq
            WHERE org_id = p_org AND id = p->>'message';
        WHEN 'input.cancelled' THEN
            UPDATE session_input SET status = 'cancelled' WHERE org_id = p_org AND id = p->>'message';
        WHEN 'delivery.changed' THEN
            UPDATE session_input SET delivery = p->>'delivery',
                wake_seq = CASE WHEN (p->>'wake')::boolean THEN at_seq ELSE wake_seq END
            WHERE org_id = p_org AND id = p->>'message';
        WHEN 'wake.requested' THEN
            UPDATE session_input SET wake_seq = at_seq
            WHERE org_id = p_org AND session_id = p_session AND status = 'admitted';
        WHEN 'entry.set' THEN
            INSERT INTO session_entry (org_id, session_id, key, value, seq, projector_version)
            VALUES (p_org, p_session, p->>'key', p->>'value', at_seq, projector)
            ON CONFLICT (org_id, session_id, key) DO UPDATE SET value = excluded.value, seq = excluded.seq;
        WHEN 'entry.removed' THEN
            DELETE FROM session_entry WHERE org_id = p_org AND session_id = p_session AND key = p->>'key';
        WHEN 'retry.scheduled', 'interrupt.requested', 'compaction.reminded' THEN
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
            cache_write_tokens = cache_write_tokens + cache_write, cost_nanos = cost_nanos + cost
        WHERE org_id = p_org AND id = p_session;
    END IF;
END $$;

-- ── The inbox ────────────────────────────────────────────────────────────────────────────────────

-- The version before gives no kind: what it admits is a prompt.
DROP FUNCTION admit_prompt(uuid, text, text, text, text, boolean, text, bigint, bigint, text);
-- Admits a prompt: one row, one event, one commit. 'admitted', 'retry' (the first row stands),
-- 'conflict' (the id is another message's) or 'missing'. `seq` is the admission's number.
CREATE FUNCTION admit_prompt(
    p_org uuid, p_session text, p_message text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text, p_kind text DEFAULT 'prompt',
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
        INSERT INTO session_input (org_id, id, session_id, kind, delivery, status, payload, admitted_seq,
            admitted_ms, wake_seq, projector_version)
        VALUES (p_org, p_message, p_session, p_kind, p_delivery, 'admitted', p_payload, seq, p_now,
            CASE WHEN p_wake THEN seq ELSE 0 END, projector_version());
        outcome := 'admitted';
        admitted_ms := p_now;
        payload := p_payload;
        RETURN;
    END IF;
    SELECT i.session_id, i.kind, i.payload, i.admitted_seq, i.admitted_ms INTO first
    FROM session_input i WHERE i.org_id = p_org AND i.id = p_message;
    IF FOUND THEN
        -- The delivery that was admitted: it may have been changed since.
        outcome := CASE WHEN first.session_id = p_session AND first.kind = p_kind
            AND first.payload::json->>'delivery' = p_delivery
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

-- One event of a gateway's, whose number the caller has taken from the head.
CREATE FUNCTION log_event(p_org uuid, p_session text, p_seq bigint, p_kind text, p_event text, p_now bigint,
    p_payload text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    VALUES (p_org, p_session, p_seq, p_event, p_kind, 1, p_now, p_payload);
    PERFORM project_events(p_org, p_session, p_seq, ARRAY[p_now], ARRAY[p_kind], ARRAY[p_payload]);
END $$;

-- Parks the wakes of a session in which nothing pending is awake: what was only stored starts no drain.
-- The caller has the head's lock, so that nobody admits meanwhile.
CREATE FUNCTION spend_wakes(p_org uuid, p_session text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE session_head h SET parked_seq = greatest(h.parked_seq, h.wake_seq)
    WHERE h.org_id = p_org AND h.id = p_session AND NOT EXISTS (
        SELECT FROM session_input i WHERE i.org_id = p_org AND i.session_id = p_session
            AND i.status = 'admitted' AND i.wake_seq > h.parked_seq);
END $$;

-- Admits a control: one row, one event, one commit. 'admitted', 'retry' (the first row stands), 'pending'
-- (a compaction waits already, and is the one that is returned), 'conflict' (the id is another's) or
-- 'missing'. `seq` is the admission's number.
CREATE FUNCTION admit_control(
    p_org uuid, p_session text, p_message text, p_kind text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text,
    OUT outcome text, OUT seq bigint, OUT location text, OUT admitted_ms bigint, OUT payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    first record;
    changed bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.parked_seq INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    SELECT i.* INTO first FROM session_input i WHERE i.org_id = p_org AND i.id = p_message;
    IF FOUND THEN
        outcome := CASE WHEN first.session_id = p_session AND first.kind = p_kind
            AND first.payload::json->>'delivery' = p_delivery
            AND first.payload::json->>'digest' = p_digest THEN 'retry' ELSE 'conflict' END;
    ELSIF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message) THEN
        outcome := 'conflict';
    ELSE
        SELECT i.* INTO first FROM session_input i
        WHERE i.org_id = p_org AND i.session_id = p_session AND i.status = 'admitted' AND i.kind = p_kind
        ORDER BY i.admitted_seq LIMIT 1;
        IF FOUND THEN
            outcome := 'pending';
            IF p_wake AND first.wake_seq <= head.parked_seq THEN
                -- It was only stored, or parked by an interrupt: this one is to run.
                UPDATE session_head h SET next_seq = h.next_seq + 1, wake_seq = h.next_seq,
                    last_id = greatest(h.last_id, p_stamp)
                WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO changed;
                PERFORM log_event(p_org, p_session, changed, 'delivery.changed', p_event, p_now,
                    json_build_object('message', first.id, 'delivery', first.delivery, 'wake', true)::text);
            END IF;
        END IF;
    END IF;
    IF outcome IS NOT NULL THEN
        seq := first.admitted_seq;
        admitted_ms := first.admitted_ms;
        payload := first.payload;
        RETURN;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + 1, pending = h.pending + 1,
        wake_seq = CASE WHEN p_wake THEN h.next_seq ELSE h.wake_seq END,
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    -- A racing admission of the same id at another session fails here on the key; the caller asks again.
    PERFORM log_event(p_org, p_session, seq, 'control.admitted', p_event, p_now, p_payload);
    outcome := 'admitted';
    admitted_ms := p_now;
    payload := p_payload;
END $$;

-- Takes an input out of the inbox. 'cancelled', 'gone' (it is not pending, or never was: nothing changes)
-- or 'missing'.
CREATE FUNCTION cancel_input(
    p_org uuid, p_session text, p_message text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id INTO location FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM session_input i WHERE i.org_id = p_org AND i.id = p_message
        AND i.session_id = p_session AND i.status = 'admitted') THEN
        outcome := 'gone';
        RETURN;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + 1, pending = h.pending - 1,
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    PERFORM log_event(p_org, p_session, seq, 'input.cancelled', p_event, p_now,
        json_build_object('message', p_message)::text);
    PERFORM spend_wakes(p_org, p_session);
    outcome := 'cancelled';
END $$;

-- Changes how a pending input joins running work; to steer wakes the session for it. 'changed', 'conflict'
-- (it is not pending, or is so already) or 'missing' (the session, or an input of it with this id).
CREATE FUNCTION change_delivery(
    p_org uuid, p_session text, p_message text, p_delivery text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    wakes CONSTANT boolean := p_delivery = 'steer';
    item record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id INTO location FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    SELECT i.delivery, i.status INTO item FROM session_input i
    WHERE i.org_id = p_org AND i.id = p_message AND i.session_id = p_session;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF item.status <> 'admitted' OR item.delivery = p_delivery THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + 1,
        wake_seq = CASE WHEN wakes THEN h.next_seq ELSE h.wake_seq END,
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    PERFORM log_event(p_org, p_session, seq, 'delivery.changed', p_event, p_now,
        json_build_object('message', p_message, 'delivery', p_delivery, 'wake', wakes)::text);
    outcome := 'changed';
END $$;

-- Wakes a session for what is pending, and opens an idle one, so that a prompt without an answer is taken
-- up again. 'woken', 'running' (a drain has it and nothing is pending: nothing changes) or 'missing'.
CREATE FUNCTION wake_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.open, h.ready, h.pending INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF head.open AND head.pending = 0 THEN
        outcome := 'running';
        RETURN;
    END IF;
    -- Its first drain takes nothing over: the one before has ended, or there was none.
    UPDATE session_head h SET next_seq = h.next_seq + 1, wake_seq = h.next_seq,
        open = h.open OR NOT h.ready, handed_over = h.handed_over OR NOT h.ready,
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    PERFORM log_event(p_org, p_session, seq, 'wake.requested', p_event, p_now, '{}');
    outcome := 'woken';
END $$;

-- Asks a session to stop. Applies to the open turn, the open drain, or the wakes before it; a session
-- with none of them is left as it is ('idle'). 'missing' when there is none.
CREATE OR REPLACE FUNCTION interrupt_session(
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
        AND t.kind <> 'title' -- it runs beside a turn, and ends by itself
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

-- ── A drain's writes: what is awake is a column now ──────────────────────────────────────────────

-- Appends a drain's events: one statement locks, proves the claim and allocates the numbers from
-- `p_first` on. `p_end`: 'keep' the drain, 'close' it, 'park' (close, and let what is pending wait for a
-- new wake), or 'hand-over' (stays open for the next holder).
-- `p_progress` clears the recovery counter. NULL: fenced, nothing written.
CREATE OR REPLACE FUNCTION append_events(
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
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    RETURN p_first + n - 1;
END $$;

-- One write of a drain, based on a head whose claim was `p_claim` and whose next number is `p_first`.
-- With `p_token` it starts the drain: it takes the Location's lock shared, finds the token still its fence
-- and raises the claim. 'written'; 'stale' (the head has moved: look again), 'fenced' (the claim has passed
-- on), 'superseded' (a higher token has been at the Location); only the first has changed anything.
--
-- `p_end`: 'keep' the drain, 'close' it, 'park' (close, and let what is pending wait for a new wake), or
-- 'hand-over' (stays open for the next holder). `p_progress` clears the recovery counter.
CREATE OR REPLACE FUNCTION write_drain(
    p_org uuid, p_session text, p_location text, p_token bigint, p_claim bigint, p_first bigint,
    p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_now bigint, p_ids text[],
    p_kinds text[], p_versions integer[], p_payloads text[], p_hashes bytea[], p_bytes bytea[])
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := cardinality(p_ids);
    starts CONSTANT boolean := p_token IS NOT NULL;
    fence_now bigint;
    left_over integer;
    held bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF starts THEN
        -- Before the look at the fence, in a statement of its own: a fence that is being raised is waited for.
        PERFORM pg_advisory_xact_lock_shared(location_lock(p_org, p_location));
        SELECT fence INTO fence_now FROM location WHERE org_id = p_org AND id = p_location;
        IF fence_now IS DISTINCT FROM p_token THEN
            RETURN 'superseded';
        END IF;
    END IF;
    UPDATE session_head SET next_seq = next_seq + n, pending = pending - p_promoted,
        last_id = greatest(last_id, p_stamp),
        open = (p_end IN ('keep', 'hand-over')),
        handed_over = (p_end = 'hand-over'),
        claim = claim + (CASE WHEN starts THEN 1 ELSE 0 END) + (CASE p_end WHEN 'keep' THEN 0 ELSE 1 END),
        -- With nothing left, the wakes are spent: an input admitted later without one stays put.
        parked_seq = CASE WHEN p_end = 'park' OR (p_end = 'close' AND pending = p_promoted)
            THEN greatest(parked_seq, wake_seq) ELSE parked_seq END,
        recoveries = CASE WHEN p_progress OR p_end IN ('close', 'park') THEN 0
            -- A takeover of work that was left open counts, unless its holder handed it over.
            WHEN starts AND open AND NOT handed_over THEN recoveries + 1
            ELSE recoveries END
    WHERE org_id = p_org AND id = p_session AND location_id = p_location
        AND claim = p_claim AND next_seq = p_first
    RETURNING pending INTO left_over;
    IF NOT FOUND THEN
        SELECT claim INTO held FROM session_head
        WHERE org_id = p_org AND id = p_session AND location_id = p_location;
        RETURN CASE WHEN starts OR held = p_claim THEN 'stale' ELSE 'fenced' END;
    END IF;
    IF cardinality(p_hashes) > 0 THEN
        INSERT INTO request_component (org_id, hash, bytes)
        SELECT p_org, new.hash, new.bytes FROM unnest(p_hashes, p_bytes) AS new (hash, bytes)
        ORDER BY new.hash ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload)
    SELECT p_org, p_session, p_first + new.i - 1, new.id, new.kind, new.version, p_now,
        p_claim + (CASE WHEN starts THEN 1 ELSE 0 END), new.payload
    FROM unnest(p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
        AS new (id, kind, version, payload, i);
    PERFORM project_events(p_org, p_session, p_first, array_fill(p_now, ARRAY[n]), p_kinds, p_payloads);
    IF p_end = 'close' AND left_over > 0 THEN
        -- What was only stored does not start another drain. The head is locked: nobody admits meanwhile.
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    RETURN 'written';
END $$;

-- ── Names and context entries ────────────────────────────────────────────────────────────────────

-- Gives a session a title. Its event's number; NULL without the session.
CREATE FUNCTION rename_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint, p_payload text)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    seq bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    UPDATE session_head h SET next_seq = h.next_seq + 1, last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    IF FOUND THEN
        PERFORM log_event(p_org, p_session, seq, 'session.renamed', p_event, p_now, p_payload);
    END IF;
    RETURN seq;
END $$;

-- Sets a context entry; wakes nobody. 'set', 'same' (it has this value: nothing changes), 'full' (there are
-- `p_most` others) or 'missing'.
CREATE FUNCTION set_entry(
    p_org uuid, p_session text, p_key text, p_value text, p_most integer, p_event text, p_stamp bigint,
    p_now bigint, p_payload text, OUT outcome text, OUT seq bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM session_entry e WHERE e.org_id = p_org AND e.session_id = p_session
        AND e.key = p_key AND e.value = p_value) THEN
        outcome := 'same';
        RETURN;
    END IF;
    IF (SELECT count(*) FROM session_entry e WHERE e.org_id = p_org AND e.session_id = p_session
        AND e.key <> p_key) >= p_most THEN
        outcome := 'full';
        RETURN;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + 1, last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    PERFORM log_event(p_org, p_session, seq, 'entry.set', p_event, p_now, p_payload);
    outcome := 'set';
END $$;

-- Removes a context entry; wakes nobody. 'removed', 'gone' (there is none: nothing changes) or 'missing'.
CREATE FUNCTION remove_entry(
    p_org uuid, p_session text, p_key text, p_event text, p_stamp bigint, p_now bigint, p_payload text,
    OUT outcome text, OUT seq bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM session_entry e WHERE e.org_id = p_org AND e.session_id = p_session
        AND e.key = p_key) THEN
        outcome := 'gone';
        RETURN;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + 1, last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    PERFORM log_event(p_org, p_session, seq, 'entry.removed', p_event, p_now, p_payload);
    outcome := 'removed';
END $$;

-- ── Trees of sessions ────────────────────────────────────────────────────────────────────────────

-- A session and all its descendants.
CREATE FUNCTION session_tree(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    WITH RECURSIVE tree AS (
        SELECT p_session COLLATE "C" AS id
        UNION ALL
        SELECT s.id FROM session s JOIN tree ON s.org_id = p_org AND s.parent_id = tree.id
    )
    SELECT id FROM tree
$$;

-- Creates a session with its first event. 'created', 'exists' (same Location and parent), 'conflict';
-- with a parent also 'orphan' (there is none), 'deep' (it is the `p_deepest`th generation below its root),
-- 'crowded' (it has `p_most` children).
DROP FUNCTION create_session(uuid, text, text, text, bigint, bigint, text);
CREATE FUNCTION create_session(
    p_org uuid, p_session text, p_location text, p_event text, p_stamp bigint, p_now bigint, p_payload text,
    p_parent text DEFAULT NULL, p_deepest integer DEFAULT 0, p_most integer DEFAULT 0)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held record;
    depth integer;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, s.parent_id INTO held FROM session_head h
        JOIN session s ON s.org_id = h.org_id AND s.id = h.id
    WHERE h.org_id = p_org AND h.id = p_session;
    IF FOUND THEN
        RETURN CASE WHEN held.location_id = p_location AND held.parent_id IS NOT DISTINCT FROM p_parent
            THEN 'exists' ELSE 'conflict' END;
    END IF;
    IF p_parent IS NOT NULL THEN
        -- Until we commit, nobody deletes it or gives it another child.
        PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = p_parent FOR UPDATE;
        IF NOT FOUND THEN
            RETURN 'orphan';
        END IF;
        WITH RECURSIVE line AS (
            SELECT s.parent_id FROM session s WHERE s.org_id = p_org AND s.id = p_parent
            UNION ALL
            SELECT s.parent_id FROM session s JOIN line ON s.org_id = p_org AND s.id = line.parent_id
        )
        SELECT count(*) INTO depth FROM line; -- the parent and what is above it
        IF depth > p_deepest THEN
            RETURN 'deep';
        END IF;
        IF (SELECT count(*) FROM session s WHERE s.org_id = p_org AND s.parent_id = p_parent) >= p_most THEN
            RETURN 'crowded';
        END IF;
    END IF;
    INSERT INTO session_head (org_id, id, location_id, next_seq, last_id)
    VALUES (p_org, p_session, p_location, 2, p_stamp)
    ON CONFLICT (org_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'raced'; -- somebody has just made it: the caller asks again
    END IF;
    PERFORM log_event(p_org, p_session, 1, 'session.created', p_event, p_now, p_payload);
    RETURN 'created';
END $$;

-- Deletes a session and its descendants, with logs and projections. How many; 0 without it; NULL when a
-- descendant was made meanwhile: nothing is deleted, the caller asks again.
CREATE FUNCTION delete_session(p_org uuid, p_session text)
RETURNS integer LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    ids text[];
    deleted integer;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    ids := ARRAY(SELECT t FROM session_tree(p_org, p_session) AS t);
    PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids) ORDER BY h.id FOR UPDATE;
    -- Who makes a child has its parent's lock. Now we have them all.
    IF EXISTS (SELECT FROM session_tree(p_org, p_session) AS t WHERE t <> ALL (ids)) THEN
        RETURN NULL;
    END IF;
    DELETE FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted > 0 THEN
        PERFORM drop_projections(p_org, t) FROM unnest(ids) AS t;
        DELETE FROM session_event e WHERE e.org_id = p_org AND e.session_id = ANY (ids);
    END IF;
    RETURN deleted;
END $$;

-- ── Reads, rebuild ───────────────────────────────────────────────────────────────────────────────

DROP FUNCTION read_session(uuid, text), read_messages(uuid, text, text, bigint);
-- A session with how far it has come and whether it has work.
CREATE FUNCTION read_session(p_org uuid, p_session text)
RETURNS TABLE (location_id text, project_id text, directory text, title text, agent text, provider text,
    model text, created_ms bigint, updated_ms bigint, outcome text, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, ready boolean, next_seq bigint,
    cost_nanos bigint, parent_id text, compacting_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
        s.created_ms, s.updated_ms, s.outcome, s.input_tokens, s.output_tokens, s.reasoning_tokens,
        s.cache_read_tokens, s.cache_write_tokens, h.ready, h.next_seq, s.cost_nanos, s.parent_id, s.compacting_ms
    FROM session_head h JOIN session s ON s.org_id = h.org_id AND s.id = h.id
    WHERE h.org_id = p_org AND h.id = p_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

-- The newest messages of a session, or one of them: a row for each part with its call, in order; one row
-- without a part for a message that has none.
CREATE FUNCTION read_messages(p_org uuid, p_session text, p_message text, p_limit bigint)
RETURNS TABLE (id text, seq bigint, role text, parent_id text, turn_id text, agent text, provider text,
    model text, created_ms bigint, completed_ms bigint, finish text, error_code text, error_message text,
    input_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cache_read_tokens bigint,
    cache_write_tokens bigint, part_id text, kind text, text text, call_id text, provider_call text, tool text,
    state text, arguments text, called_ms bigint, outcome text, title text, bounded_text text, structured text,
    managed_path text, truncated boolean, started_ms bigint, ended_ms bigint,
    cost_nanos bigint, synthetic text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    ids text[];
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF p_message IS NULL THEN
        ids := ARRAY(SELECT m.id FROM message m WHERE m.org_id = p_org AND m.session_id = p_session
            ORDER BY m.seq DESC LIMIT p_limit);
    ELSIF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message
        AND m.session_id || '' = p_session) THEN -- by its id alone: the session's index has all of its messages
        ids := ARRAY[p_message];
    END IF;
    -- By their ids alone, for the same reason.
    RETURN QUERY SELECT m.id, m.seq, m.role, m.parent_id, m.turn_id, m.agent, m.provider, m.model, m.created_ms,
        m.completed_ms, m.finish, m.error_code, m.error_message, m.input_tokens, m.output_tokens,
        m.reasoning_tokens, m.cache_read_tokens, m.cache_write_tokens, p.id, p.kind, p.text, c.id,
        c.provider_call, c.tool, c.state, c.arguments, c.called_ms, c.outcome, c.title, c.bounded_text,
        c.structured, c.managed_path, c.truncated, c.started_ms, c.ended_ms,
        m.cost_nanos, m.synthetic
    FROM message m
        LEFT JOIN part p ON p.org_id = m.org_id AND p.session_id = p_session AND p.message_id = m.id
        LEFT JOIN tool_result c ON c.org_id = p.org_id AND c.id = p.call_id
    WHERE m.org_id = p_org AND m.id = ANY (ids)
    ORDER BY m.seq, p.place, p.seq, p.id;
    -- A session without a message is there all the same.
    IF NOT FOUND AND (p_message IS NOT NULL OR NOT EXISTS (
        SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session)) THEN
        RAISE EXCEPTION 'no session or message %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

-- The inputs that a session's log names, of every kind.
CREATE FUNCTION logged_inputs(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT e.payload::json->>'message' FROM session_event e
    WHERE e.org_id = p_org AND e.session_id = p_session AND e.kind IN ('prompt.admitted', 'control.admitted')
$$;

-- Every projected row of a session as text, in a fixed order: what a rebuild must reproduce.
CREATE OR REPLACE FUNCTION projection_rows(p_org uuid, p_session text)
RETURNS TABLE (name text, line text) LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT 'session', t::text FROM session t WHERE org_id = p_org AND id = p_session
    UNION ALL SELECT 'session_input', t::text FROM session_input t
        WHERE org_id = p_org AND session_id = p_session
            AND id = ANY (ARRAY(SELECT logged_inputs(p_org, p_session)))
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
    UNION ALL SELECT 'session_entry', t::text FROM session_entry t WHERE org_id = p_org AND session_id = p_session
    ORDER BY 1, 2
$$;

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
END $$;

REVOKE ALL ON FUNCTION admit_prompt, log_event, spend_wakes, admit_control, cancel_input, change_delivery,
    wake_session, rename_session, set_entry, remove_entry, session_tree, create_session, delete_session,
    read_session, read_messages, logged_inputs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION admit_prompt, log_event, spend_wakes, admit_control, cancel_input, change_delivery,
    wake_session, rename_session, set_entry, remove_entry, session_tree, create_session, delete_session,
    read_session, read_messages, logged_inputs TO oc_app, oc_migrate;
RESET ROLE;
