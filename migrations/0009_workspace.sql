-- What sessions do with their files and places: snapshots and the changes between them, Reverts, Forks, Moves,
-- and an interrupt that lets what steers go on.
SET LOCAL ROLE oc_owner;

-- The `revert.staged` that waits; 0 without one. Admission looks at nothing but the head.
ALTER TABLE session_head ADD COLUMN staged_seq bigint NOT NULL DEFAULT 0;
-- The session whose conversation it began with; the payload of the `revert.staged` that waits.
ALTER TABLE session ADD COLUMN fork_of text COLLATE "C", ADD COLUMN revert text;
-- Why the epoch began.
ALTER TABLE context_epoch ADD COLUMN reason text;
-- Whose files a Location begins with, and which: a Fork's or a Move's own copy.
ALTER TABLE location ADD COLUMN seed_location text COLLATE "C", ADD COLUMN seed_tree text COLLATE "C";

-- The snapshots of a Location's files, in the order of (token, ordinal). No projection: packs are stored before
-- their rows, and outlive the session whose drain made them.
CREATE TABLE workspace_pack (
    org_id uuid NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    ordinal bigint NOT NULL,
    tree text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    -- The object that holds what is new in the tree; NULL when earlier packs hold all of it.
    pack text COLLATE "C",
    bytes bigint NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, location_id, token, ordinal)
);

-- A projection: what changed in a session's files between two snapshots.
CREATE TABLE workspace_change (
    org_id uuid NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    turn_id text COLLATE "C",
    -- The first snapshot of a Location: nothing has changed in it.
    base boolean NOT NULL,
    tree text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    -- JSON text: path, status, counted lines and a patch of each file, and how many files are left out.
    files text NOT NULL,
    more bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, session_id, seq)
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['workspace_pack', 'workspace_change'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_migrate', name);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO oc_app', name);
    END LOOP;
END $$;
GRANT UPDATE, DELETE ON workspace_change TO oc_app; -- a rebuild's

-- Controls, compactions, titles, snapshots, Forks and context entries: what builds of this level write and
-- those before them cannot read.
UPDATE cluster SET feature_level = 2;

CREATE OR REPLACE FUNCTION projector_version() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 3::smallint;

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
            INSERT INTO context_epoch (org_id, session_id, epoch, reason, baseline, snapshot, started_seq,
                projector_version)
            VALUES (p_org, p_session, (p->>'epoch')::integer, p->>'reason', p->>'baseline', p->>'snapshot',
                at_seq, projector);
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
        WHEN 'workspace.snapshotted' THEN
            INSERT INTO workspace_change (org_id, session_id, seq, turn_id, base, tree, parent, files, more,
                projector_version)
            VALUES (p_org, p_session, at_seq, p->>'turn', coalesce((p->>'base')::boolean, false), p->>'tree',
                p->>'parent', coalesce(p_payloads[i]::json->>'files', '[]'), coalesce((p->>'more')::bigint, 0),
                projector);
            -- No projection: it outlives the session, and a rebuild finds it there.
            INSERT INTO workspace_pack (org_id, location_id, token, ordinal, tree, parent, pack, bytes, created_ms)
            SELECT p_org, s.location_id, (p->>'token')::bigint, (p->>'ordinal')::bigint, p->>'tree',
                p->>'parent', p->>'pack', (p->>'bytes')::bigint, at_ms
            FROM session s WHERE s.org_id = p_org AND s.id = p_session
            ON CONFLICT DO NOTHING;
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
            -- Of narrow scope: what steers, and a control before which nothing is queued.
            UPDATE session_input i SET wake_seq = at_seq
            WHERE i.org_id = p_org AND i.session_id = p_session AND i.status = 'admitted'
                AND (p->>'scope' IS DISTINCT FROM 'steer' OR i.delivery = 'steer'
                    OR i.kind NOT IN ('prompt', 'synthetic') AND NOT EXISTS (
                        SELECT FROM session_input q WHERE q.org_id = p_org AND q.session_id = p_session
                            AND q.status = 'admitted' AND q.delivery = 'queue'
                            AND q.kind IN ('prompt', 'synthetic') AND q.admitted_seq < i.admitted_seq));
        WHEN 'entry.set' THEN
            INSERT INTO session_entry (org_id, session_id, key, value, seq, projector_version)
            VALUES (p_org, p_session, p->>'key', p->>'value', at_seq, projector)
            ON CONFLICT (org_id, session_id, key) DO UPDATE SET value = excluded.value, seq = excluded.seq;
        WHEN 'entry.removed' THEN
            DELETE FROM session_entry WHERE org_id = p_org AND session_id = p_session AND key = p->>'key';
        WHEN 'session.moved' THEN
            UPDATE session SET location_id = p->>'to', project_id = p->>'project', directory = p->>'directory'
            WHERE org_id = p_org AND id = p_session;
            touched_ms := at_ms;
        WHEN 'session.forked' THEN
            UPDATE session SET fork_of = p->>'parent' WHERE org_id = p_org AND id = p_session;
        WHEN 'revert.staging' THEN
            -- One that was staged is not any more: nobody is to commit it while its files are put back.
            UPDATE session SET revert = NULL WHERE org_id = p_org AND id = p_session;
            UPDATE session_head SET staged_seq = 0 WHERE org_id = p_org AND id = p_session;
        WHEN 'revert.staged' THEN
            UPDATE session SET revert = p_payloads[i] WHERE org_id = p_org AND id = p_session;
            -- The head is no projection, but admission looks at nothing else.
            UPDATE session_head SET staged_seq = at_seq WHERE org_id = p_org AND id = p_session;
            touched_ms := at_ms;
        WHEN 'revert.cleared' THEN
            UPDATE session SET revert = NULL WHERE org_id = p_org AND id = p_session;
            UPDATE session_head SET staged_seq = 0 WHERE org_id = p_org AND id = p_session;
            touched_ms := at_ms;
        WHEN 'revert.committed' THEN
            UPDATE session SET revert = NULL WHERE org_id = p_org AND id = p_session;
            UPDATE session_head SET staged_seq = 0 WHERE org_id = p_org AND id = p_session;
            -- Turns, calls, attempts and what they used stay: they happened.
            DELETE FROM part WHERE org_id = p_org AND session_id = p_session AND seq >= (p->>'from')::bigint;
            DELETE FROM message WHERE org_id = p_org AND session_id = p_session AND seq >= (p->>'from')::bigint;
            DELETE FROM mid_conversation_system_message
            WHERE org_id = p_org AND session_id = p_session AND seq >= (p->>'from')::bigint;
            -- The model has been told what it had been told then.
            DELETE FROM context_epoch
            WHERE org_id = p_org AND session_id = p_session
                AND epoch > coalesce((p#>>'{back,epoch}')::integer, 0);
            UPDATE context_epoch SET snapshot = p#>>'{back,snapshot}'
            WHERE org_id = p_org AND session_id = p_session AND epoch = (p#>>'{back,epoch}')::integer
                AND p#>>'{back,snapshot}' IS NOT NULL;
            touched_ms := at_ms;
        WHEN 'retry.scheduled', 'interrupt.requested', 'compaction.reminded', 'workspace.restored' THEN
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

-- ── Reverts ──────────────────────────────────────────────────────────────────────────────────────

-- The synthetic input that waits for a staged Revert to end.
CREATE FUNCTION held_inputs(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT i.id FROM session_head h JOIN session_input i ON i.org_id = h.org_id AND i.session_id = h.id
    WHERE h.org_id = p_org AND h.id = p_session AND h.staged_seq > 0
        AND i.status = 'admitted' AND i.kind = 'synthetic' AND i.admitted_seq > h.staged_seq
    ORDER BY i.admitted_seq
$$;

-- Commits the staged Revert of a session whose head the caller has locked, and cancels the synthetic input that
-- it held: one event for each, with ids of `p_spare`. 0; or how many ids it needs, and nothing is changed, as
-- with `p_ask`.
CREATE FUNCTION commit_staged(
    p_org uuid, p_session text, p_spare text[], p_stamp bigint, p_now bigint, p_ask boolean)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held CONSTANT text[] := ARRAY(SELECT held_inputs(p_org, p_session));
    n CONSTANT integer := 1 + cardinality(held);
    staged json;
    kinds text[];
    payloads text[];
    first bigint;
BEGIN
    IF p_ask OR cardinality(p_spare) < n THEN
        RETURN n;
    END IF;
    SELECT s.revert::json INTO staged FROM session s WHERE s.org_id = p_org AND s.id = p_session;
    kinds := 'revert.committed'::text || array_fill('input.cancelled'::text, ARRAY[n - 1]);
    -- json keeps the bytes of what it takes over.
    payloads := json_build_object(
            'message', staged->'message', 'from', staged->'from', 'back', staged->'back')::text
        || ARRAY(SELECT json_build_object('message', id)::text
            FROM unnest(held) WITH ORDINALITY AS h (id, place) ORDER BY place);
    UPDATE session_head h SET next_seq = h.next_seq + n, pending = h.pending - (n - 1),
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - n INTO first;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    SELECT p_org, p_session, first + i - 1, p_spare[i], kinds[i], 1, p_now, payloads[i]
    FROM generate_series(1, n) AS i;
    PERFORM project_events(p_org, p_session, first, array_fill(p_now, ARRAY[n]), kinds, payloads);
    RETURN 0;
END $$;

-- Commits a staged Revert, of an idle session. 'committed', 'none' (nothing is staged: nothing changes),
-- 'busy', 'staged' (`seq` ids are needed) or 'missing'.
CREATE FUNCTION commit_revert(
    p_org uuid, p_session text, p_spare text[], p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    needed bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.ready, h.staged_seq, h.next_seq INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF head.ready THEN
        outcome := 'busy';
        RETURN;
    END IF;
    IF head.staged_seq = 0 THEN
        outcome := 'none';
        RETURN;
    END IF;
    needed := commit_staged(p_org, p_session, p_spare, p_stamp, p_now, false);
    outcome := CASE needed WHEN 0 THEN 'committed' ELSE 'staged' END;
    seq := CASE needed WHEN 0 THEN head.next_seq ELSE needed END;
END $$;

-- ── The inbox, with a Revert that may be staged ──────────────────────────────────────────────────

DROP FUNCTION admit_prompt(uuid, text, text, text, text, boolean, text, bigint, bigint, text, text);
-- Admits a prompt: one row, one event, one commit. 'admitted', 'retry' (the first row stands),
-- 'conflict' (the id is another message's) or 'missing'. `seq` is the admission's number.
--
-- A Revert that is staged in an idle session is committed before it, with ids of `p_spare`; in a busy one the
-- drain finds both. Until it ends synthetic input waits without a wake. 'staged': nothing is changed, and the
-- caller has `seq` ids to give, or a wake to take away.
CREATE FUNCTION admit_prompt(
    p_org uuid, p_session text, p_message text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text, p_kind text DEFAULT 'prompt',
    p_spare text[] DEFAULT '{}',
    OUT outcome text, OUT seq bigint, OUT location text, OUT admitted_ms bigint, OUT payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- An assignment costs less than a statement.
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    first record;
    staged bigint;
    busy boolean;
    needed bigint;
BEGIN
    LOOP
        -- The common case in one statement: a new id. An id that is taken leaves the head as it is. That of a
        -- reply or a notice counts as taken: it would stop every later promotion on its key.
        UPDATE session_head SET next_seq = next_seq + 1, pending = pending + 1,
            wake_seq = CASE WHEN p_wake THEN next_seq ELSE wake_seq END,
            last_id = greatest(last_id, p_stamp)
        WHERE org_id = p_org AND id = p_session
            AND (staged_seq = 0 OR CASE p_kind WHEN 'prompt' THEN ready ELSE NOT p_wake END)
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
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message) THEN
            outcome := 'conflict';
            RETURN;
        END IF;
        SELECT h.staged_seq, h.ready INTO staged, busy FROM session_head h
        WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
        IF NOT FOUND THEN
            outcome := 'missing';
            RETURN;
        END IF;
        IF staged > 0 AND (CASE p_kind WHEN 'prompt' THEN NOT busy ELSE p_wake END) THEN
            needed := commit_staged(p_org, p_session, p_spare, p_stamp, p_now, p_kind <> 'prompt');
            IF needed > 0 THEN
                outcome := 'staged';
                seq := needed;
                RETURN;
            END IF;
        END IF;
        -- The head is locked now: the next round admits it, or finds what was admitted meanwhile.
    END LOOP;
END $$;

-- Admits a control: one row, one event, one commit. 'admitted', 'retry' (the first row stands), 'pending'
-- (a compaction waits already, and is the one that is returned), 'conflict' (the id is another's), 'busy' (a
-- Revert and its end want an idle session) or 'missing'. `seq` is the admission's number.
CREATE OR REPLACE FUNCTION admit_control(
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
    SELECT h.location_id, h.parked_seq, h.ready, h.staged_seq INTO head FROM session_head h
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
    ELSIF p_kind IN ('revert', 'unrevert') AND (head.ready OR EXISTS (
            -- What waits without a wake would be promoted first; what the staged Revert holds is not.
            SELECT FROM session_input i WHERE i.org_id = p_org AND i.session_id = p_session
                AND i.status = 'admitted'
                AND NOT (i.kind = 'synthetic' AND head.staged_seq BETWEEN 1 AND i.admitted_seq))) THEN
        outcome := 'busy';
    ELSIF p_kind = 'compaction' THEN
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

-- Changes how a pending input joins running work; to steer wakes the session for it, unless a staged Revert
-- holds it. 'changed', 'conflict'
-- (it is not pending, or is so already) or 'missing' (the session, or an input of it with this id).
CREATE OR REPLACE FUNCTION change_delivery(
    p_org uuid, p_session text, p_message text, p_delivery text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    wakes boolean;
    item record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, p_delivery = 'steer' AND h.staged_seq = 0 INTO location, wakes FROM session_head h
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
-- up again. 'woken', 'running' (a drain has it and nothing is pending, or it waits with a staged Revert: nothing
-- changes) or 'missing'.
CREATE OR REPLACE FUNCTION wake_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.open, h.ready, h.pending, h.staged_seq INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF head.open AND head.pending = 0 OR head.staged_seq > 0 THEN
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

-- ── Interrupts that let go on, Moves, Forks ──────────────────────────────────────────────────────

-- Asks a session to stop and then to go on with what steers it, and with a control that is next: what else is
-- queued stays parked. `outcome` and `seq` are interrupt_session's; `wake` is the number of the wake, NULL when
-- nothing is to go on.
CREATE FUNCTION interrupt_and_resume(
    p_org uuid, p_session text, p_event text, p_wake_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text, OUT wake bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    next record;
BEGIN
    SELECT i.outcome, i.seq, i.location INTO outcome, seq, location
    FROM interrupt_session(p_org, p_session, p_event, p_stamp, p_now) AS i;
    IF outcome = 'missing' THEN
        RETURN;
    END IF;
    SELECT i.kind, i.delivery INTO next FROM session_input i
    WHERE i.org_id = p_org AND i.session_id = p_session AND i.status = 'admitted'
    ORDER BY i.delivery = 'queue', i.admitted_seq LIMIT 1;
    IF NOT FOUND OR next.delivery = 'queue' AND next.kind IN ('prompt', 'synthetic') THEN
        RETURN;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + 1, wake_seq = h.next_seq,
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session AND h.staged_seq = 0 RETURNING h.next_seq - 1 INTO wake;
    IF FOUND THEN
        PERFORM log_event(p_org, p_session, wake, 'wake.requested', p_wake_event, p_now, '{"scope":"steer"}');
    END IF;
END $$;

-- A drain's last write at its Location, as write_drain's but for this: both Locations' locks, in ascending
-- order, are taken before the head; the session is at `p_to` with it, and the claim passes on. With `p_seed`,
-- `p_to` begins with these files of `p_from`, if nobody has been there yet. 'written', 'stale', 'fenced',
-- 'superseded', or 'nowhere' (there is no `p_to`); only the first has changed anything.
--
-- `p_end`: 'moved' closes the drain; with 'moved-open' work continues at `p_to`.
CREATE FUNCTION move_session(
    p_org uuid, p_session text, p_from text, p_to text, p_seed text, p_token bigint, p_claim bigint,
    p_first bigint, p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_now bigint,
    p_ids text[], p_kinds text[], p_versions integer[], p_payloads text[])
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := cardinality(p_ids);
    starts CONSTANT boolean := p_token IS NOT NULL;
    a CONSTANT bigint := location_lock(p_org, p_from);
    b CONSTANT bigint := location_lock(p_org, p_to);
    fence_now bigint;
    left_over integer;
    held bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(least(a, b));
    PERFORM pg_advisory_xact_lock(greatest(a, b));
    IF starts THEN
        SELECT fence INTO fence_now FROM location WHERE org_id = p_org AND id = p_from;
        IF fence_now IS DISTINCT FROM p_token THEN
            RETURN 'superseded';
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM location WHERE org_id = p_org AND id = p_to) THEN
        RETURN 'nowhere';
    END IF;
    UPDATE session_head SET next_seq = next_seq + n, pending = pending - p_promoted,
        last_id = greatest(last_id, p_stamp),
        location_id = p_to,
        open = (p_end = 'moved-open'),
        handed_over = (p_end = 'moved-open'),
        claim = claim + (CASE WHEN starts THEN 2 ELSE 1 END),
        parked_seq = CASE WHEN p_end = 'moved' AND pending = p_promoted
            THEN greatest(parked_seq, wake_seq) ELSE parked_seq END,
        recoveries = CASE WHEN p_progress OR p_end <> 'moved-open' THEN 0
            WHEN starts AND open AND NOT handed_over THEN recoveries + 1
            ELSE recoveries END
    WHERE org_id = p_org AND id = p_session AND location_id = p_from
        AND claim = p_claim AND next_seq = p_first
    RETURNING pending INTO left_over;
    IF NOT FOUND THEN
        SELECT claim INTO held FROM session_head
        WHERE org_id = p_org AND id = p_session AND location_id = p_from;
        RETURN CASE WHEN starts OR held = p_claim THEN 'stale' ELSE 'fenced' END;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload)
    SELECT p_org, p_session, p_first + new.i - 1, new.id, new.kind, new.version, p_now,
        p_claim + (CASE WHEN starts THEN 1 ELSE 0 END), new.payload
    FROM unnest(p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
        AS new (id, kind, version, payload, i);
    PERFORM project_events(p_org, p_session, p_first, array_fill(p_now, ARRAY[n]), p_kinds, p_payloads);
    IF p_end = 'moved' AND left_over > 0 THEN
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    IF p_seed IS NOT NULL THEN
        PERFORM seed_location(p_org, p_to, p_from, p_seed);
    END IF;
    RETURN 'written';
END $$;

-- Says which files a Location begins with. 'seeded', 'used' (it has files of its own, or other ones to begin
-- with) or 'missing'.
CREATE FUNCTION seed_location(p_org uuid, p_location text, p_from text, p_tree text)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    UPDATE location l SET seed_location = p_from, seed_tree = p_tree
    WHERE l.org_id = p_org AND l.id = p_location
        AND (l.seed_tree IS NULL OR (l.seed_location = p_from AND l.seed_tree = p_tree))
        AND NOT EXISTS (SELECT FROM workspace_pack w WHERE w.org_id = p_org AND w.location_id = p_location);
    RETURN CASE WHEN FOUND THEN 'seeded'
        WHEN EXISTS (SELECT FROM location l WHERE l.org_id = p_org AND l.id = p_location) THEN 'used'
        ELSE 'missing' END;
END $$;

-- Creates a session that begins with the conversation of another: its head and all its events, with their own
-- times. The other is not locked, and its log stays as it is up to `p_through`. 'created', 'exists' (a Fork of
-- the same session, before the same message), 'conflict', 'orphan' (there is no parent with such a log) or
-- 'raced' (ask again).
CREATE FUNCTION fork_session(
    p_org uuid, p_session text, p_parent text, p_through bigint, p_location text, p_stamp bigint, p_ids text[],
    p_kinds text[], p_versions integer[], p_times bigint[], p_payloads text[])
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT e.kind, e.payload::json->>'parent' AS parent, e.payload::json->>'before' AS before INTO held
    FROM session_head h LEFT JOIN session_event e ON e.org_id = h.org_id AND e.session_id = h.id AND e.seq = 2
    WHERE h.org_id = p_org AND h.id = p_session;
    IF FOUND THEN
        RETURN CASE WHEN held.kind = 'session.forked' AND held.parent = p_parent
            AND held.before IS NOT DISTINCT FROM p_payloads[2]::json->>'before' THEN 'exists' ELSE 'conflict' END;
    END IF;
    IF NOT EXISTS (SELECT FROM session_head h
        WHERE h.org_id = p_org AND h.id = p_parent AND h.next_seq > p_through) THEN
        RETURN 'orphan';
    END IF;
    INSERT INTO session_head (org_id, id, location_id, next_seq, last_id)
    VALUES (p_org, p_session, p_location, 1 + cardinality(p_ids), p_stamp)
    ON CONFLICT (org_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'raced';
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    SELECT p_org, p_session, new.i, new.id, new.kind, new.version, new.time, new.payload
    FROM unnest(p_ids, p_kinds, p_versions, p_times, p_payloads) WITH ORDINALITY
        AS new (id, kind, version, time, payload, i);
    PERFORM project_events(p_org, p_session, 1, p_times, p_kinds, p_payloads);
    RETURN 'created';
END $$;

-- ── Reads, rebuild ───────────────────────────────────────────────────────────────────────────────

DROP FUNCTION read_session(uuid, text);
-- A session with how far it has come and whether it has work.
CREATE FUNCTION read_session(p_org uuid, p_session text)
RETURNS TABLE (location_id text, project_id text, directory text, title text, agent text, provider text,
    model text, created_ms bigint, updated_ms bigint, outcome text, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, ready boolean, next_seq bigint,
    cost_nanos bigint, parent_id text, compacting_ms bigint, fork_of text, revert text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
        s.created_ms, s.updated_ms, s.outcome, s.input_tokens, s.output_tokens, s.reasoning_tokens,
        s.cache_read_tokens, s.cache_write_tokens, h.ready, h.next_seq, s.cost_nanos, s.parent_id, s.compacting_ms,
        s.fork_of, s.revert
    FROM session_head h JOIN session s ON s.org_id = h.org_id AND s.id = h.id
    WHERE h.org_id = p_org AND h.id = p_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

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
    UNION ALL SELECT 'workspace_change', t::text FROM workspace_change t
        WHERE org_id = p_org AND session_id = p_session
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
    DELETE FROM workspace_change WHERE org_id = p_org AND session_id = p_session;
END $$;

REVOKE ALL ON FUNCTION held_inputs, commit_staged, commit_revert, admit_prompt, interrupt_and_resume,
    move_session, seed_location, fork_session, read_session FROM PUBLIC;
GRANT EXECUTE ON FUNCTION held_inputs, commit_staged, commit_revert, admit_prompt, interrupt_and_resume,
    move_session, seed_location, fork_session, read_session TO oc_app, oc_migrate;
RESET ROLE;

-- Of the new tables, what 0003 has of the others: without it the planner takes org_id for as selective as a
-- whole key.
DO $$
DECLARE
    o CONSTANT uuid := 'ffffffff-0000-4000-8000-000000000000';
BEGIN
    INSERT INTO workspace_pack (org_id, location_id, token, ordinal, tree, bytes, created_ms)
    SELECT o, 'l' || s, n / 10, n, 't' || n, n, n FROM generate_series(1, 20) AS s, generate_series(1, 50) AS n;
    INSERT INTO workspace_change (org_id, session_id, seq, base, tree, files, more, projector_version)
    SELECT o, 's' || s, s * 50 + n, false, 't' || n, '[]', 0, 0
    FROM generate_series(1, 20) AS s, generate_series(1, 50) AS n;
END $$;
SET LOCAL ROLE oc_owner;
ANALYZE workspace_pack, workspace_change;
RESET ROLE;
DELETE FROM workspace_pack WHERE org_id = 'ffffffff-0000-4000-8000-000000000000';
DELETE FROM workspace_change WHERE org_id = 'ffffffff-0000-4000-8000-000000000000';
