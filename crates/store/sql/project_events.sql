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
            INSERT INTO message (org_id, id, session_id, seq, role, agent, provider, model, variant,
                created_ms, completed_ms, synthetic, projector_version)
            VALUES (p_org, p->>'message', p_session, at_seq, 'user', p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', p#>>'{model,variant}', (p->>'admitted')::bigint, at_ms, p->>'synthetic', projector);
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
                model, variant, created_ms, projector_version)
            VALUES (p_org, p->>'message', p_session, at_seq, 'assistant', p->>'parent', p->>'turn', p->>'agent',
                p#>>'{model,provider}', p#>>'{model,model}', p#>>'{model,variant}', at_ms, projector);
            IF p ? 'notice' THEN
                UPDATE session SET notices = (coalesce(notices, '[]')::jsonb || jsonb_build_object(
                    'provider', p#>>'{model,provider}', 'model', p#>>'{model,model}', 'text', p->>'notice',
                    'time', at_ms))::text
                WHERE org_id = p_org AND id = p_session;
            END IF;
        WHEN 'attempt.started' THEN
            INSERT INTO provider_attempt (org_id, id, session_id, turn_id, ordinal, seq, wire_version,
                body_hash, epoch, through_seq, components, price_version, estimate_nanos, started_ms,
                projector_version)
            VALUES (p_org, p->>'attempt', p_session, p->>'turn', (p->>'ordinal')::integer, at_seq,
                (p->>'wire_version')::integer, p->>'body_hash', (p->>'epoch')::integer,
                (p->>'through')::bigint, p_payloads[i]::json->>'components', p#>>'{pricing,version}',
                (p#>>'{pricing,estimate,cost}')::bigint, at_ms, projector);
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
                reply_text(item), projector
            FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place)
            WHERE item->>'type' <> 'tool-call'
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
                provider, model, variant, created_ms, updated_ms, projector_version)
            VALUES (p_org, p_session, p->>'project', p->>'location', p->>'directory', p->>'title',
                coalesce((p->>'named')::boolean, false), p->>'parent', p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', p#>>'{model,variant}', at_ms, at_ms, projector);
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
            variant = CASE WHEN promoted IS NULL THEN variant ELSE promoted#>>'{model,variant}' END,
            input_tokens = input_tokens + input, output_tokens = output_tokens + output,
            reasoning_tokens = reasoning_tokens + reasoning, cache_read_tokens = cache_read_tokens + cache_read,
            cache_write_tokens = cache_write_tokens + cache_write, cost_nanos = cost_nanos + cost
        WHERE org_id = p_org AND id = p_session;
    END IF;
END $$;
