-- Folds events into the projections: those of one session after those of the other, in the order of their numbers.
-- Gives the rows that folding them one by one gives, wherever a batch begins and ends. The one program for live writes,
-- for several sessions at once and for rebuilds. Holds only what the events hold: no now(), no random id.
-- A change of what it writes raises projector_version() and wants `opencode-cloud rebuild`.
--
-- A statement costs more than what it does. So rows that most turns make are made for all events at once, and what
-- several events say of one row is written once: the session's at its end, a reply's with its turn's settlement.
-- Rows are looked up one by one, by constants: row security lets no key be looked up by an expression of a join.
CREATE OR REPLACE FUNCTION project_events(
    p_org uuid, p_sessions text[], p_numbers bigint[], p_seqs bigint[], p_times bigint[], p_kinds text[],
    p_payloads text[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    projector CONSTANT smallint := projector_version();
    n CONSTANT integer := cardinality(p_kinds);
    -- Their rows depend on what is there when their turn comes: nothing may be made before it.
    in_order CONSTANT text[] := ARRAY['text.checkpointed', 'revert.committed'];
    -- Parsed once: json would read the whole text again for every field.
    docs CONSTANT jsonb[] := p_payloads::jsonb[];
    half CONSTANT integer := n / 2;
    -- The event at hand.
    p jsonb;
    p_session text;
    number bigint;
    at_seq bigint;
    at_ms bigint;
    is_other boolean;
    -- The usage in it, which goes into several rows.
    u_input bigint;
    u_output bigint;
    u_reasoning bigint;
    u_cache_read bigint;
    u_cache_write bigint;
    u_cost bigint;
    -- The list of components that an attempt names; NULL when it has them inline.
    list bytea;
    -- A reply whose turn and message are not told its end yet.
    reply jsonb;
    -- The newest promotion, and what else the session is told at its end.
    promoted jsonb;
    ended text;
    touched_ms bigint;
    input bigint := 0;
    output bigint := 0;
    reasoning bigint := 0;
    cache_read bigint := 0;
    cache_write bigint := 0;
    cost bigint := 0;
BEGIN
    IF n > 1 AND p_kinds && in_order THEN
        -- In halves: to cut an array costs as much as it is long.
        PERFORM project_events(p_org, p_sessions[:half], p_numbers[:half], p_seqs[:half], p_times[:half],
            p_kinds[:half], p_payloads[:half]);
        PERFORM project_events(p_org, p_sessions[half + 1:], p_numbers[half + 1:], p_seqs[half + 1:],
            p_times[half + 1:], p_kinds[half + 1:], p_payloads[half + 1:]);
        RETURN;
    END IF;
    IF 'prompt.promoted' = ANY (p_kinds) THEN
        INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', e.number, e.p->>'message', e.seq, place, 'text', item->>'text', projector
        FROM unnest(p_numbers, p_seqs, p_kinds, docs) AS e (number, seq, kind, p),
            jsonb_array_elements(e.p->'parts') WITH ORDINALITY AS parts (item, place)
        WHERE e.kind = 'prompt.promoted';
    END IF;
    IF p_kinds && ARRAY['prompt.promoted', 'turn.started'] THEN
        INSERT INTO message (org_id, id, incarnation, seq, role, parent_id, turn_id, agent, provider, model,
            variant, created_ms, completed_ms, synthetic, projector_version)
        SELECT p_org, e.p->>'message', e.number, e.seq, said.role,
            CASE said.role WHEN 'assistant' THEN e.p->>'parent' END,
            CASE said.role WHEN 'assistant' THEN e.p->>'turn' END,
            e.p->>'agent', e.p#>>'{model,provider}', e.p#>>'{model,model}', e.p#>>'{model,variant}',
            CASE said.role WHEN 'user' THEN (e.p->>'admitted')::bigint ELSE e.at_ms END,
            CASE said.role WHEN 'user' THEN e.at_ms END,
            CASE said.role WHEN 'user' THEN e.p->>'synthetic' END, projector
        FROM unnest(p_numbers, p_seqs, p_times, p_kinds, docs) AS e (number, seq, at_ms, kind, p)
        JOIN (VALUES ('prompt.promoted', 'user'), ('turn.started', 'assistant')) AS said (kind, role)
            ON said.kind = e.kind;
    END IF;
    IF 'turn.started' = ANY (p_kinds) THEN
        INSERT INTO provider_turn (org_id, id, incarnation, message_id, seq, agent, provider, model, epoch, step,
            status, started_ms, projector_version)
        SELECT p_org, e.p->>'turn', e.number, e.p->>'message', e.seq, e.p->>'agent', e.p#>>'{model,provider}',
            e.p#>>'{model,model}', (e.p->>'epoch')::integer, (e.p->>'step')::integer, 'open', e.at_ms, projector
        FROM unnest(p_numbers, p_seqs, p_times, p_kinds, docs) AS e (number, seq, at_ms, kind, p)
        WHERE e.kind = 'turn.started';
    END IF;
    IF 'attempt.started' = ANY (p_kinds) THEN
        INSERT INTO provider_attempt (org_id, id, incarnation, turn_id, seq, price_version, estimate_nanos,
            projector_version)
        SELECT p_org, e.p->>'attempt', e.number, e.p->>'turn', e.seq, e.p#>>'{pricing,version}',
            (e.p#>>'{pricing,estimate,cost}')::bigint, projector
        FROM unnest(p_numbers, p_seqs, p_kinds, docs) AS e (number, seq, kind, p)
        WHERE e.kind = 'attempt.started';
    END IF;
    IF 'turn.replied' = ANY (p_kinds) THEN
        INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', e.number, e.p->>'message', e.seq, place, item->>'type', reply_text(item),
            projector
        FROM unnest(p_numbers, p_seqs, p_kinds, docs) AS e (number, seq, kind, p),
            jsonb_array_elements(e.p->'parts') WITH ORDINALITY AS parts (item, place)
        WHERE e.kind = 'turn.replied' AND item->>'type' <> 'tool-call'
        ON CONFLICT (incarnation, message_id, id) DO UPDATE SET place = excluded.place, text = excluded.text;
    END IF;
    -- One round more than there are events: it writes what the last session is told at its end.
    FOR i IN 1 .. n + 1 LOOP
        p := docs[i];
        is_other := i > 1 AND p_numbers[i] IS DISTINCT FROM number;
        IF reply IS NOT NULL AND (is_other
            OR p_kinds[i] IN ('turn.replied', 'turn.settled') AND reply->>'turn' <> p->>'turn') THEN
            UPDATE provider_turn SET status = 'replied', finish = reply->>'finish'
            WHERE org_id = p_org AND id = reply->>'turn';
            UPDATE message SET finish = reply->>'finish' WHERE org_id = p_org AND id = reply->>'message';
            reply := NULL;
        END IF;
        IF is_other AND touched_ms IS NOT NULL THEN
            UPDATE session SET updated_ms = touched_ms, outcome = coalesce(ended, outcome),
                agent = coalesce(promoted->>'agent', agent),
                provider = coalesce(promoted#>>'{model,provider}', provider),
                model = coalesce(promoted#>>'{model,model}', model),
                variant = CASE WHEN promoted IS NULL THEN variant ELSE promoted#>>'{model,variant}' END,
                input_tokens = add_counts(input_tokens, input),
                output_tokens = add_counts(output_tokens, output),
                reasoning_tokens = add_counts(reasoning_tokens, reasoning),
                cache_read_tokens = add_counts(cache_read_tokens, cache_read),
                cache_write_tokens = add_counts(cache_write_tokens, cache_write),
                cost_nanos = add_counts(cost_nanos, cost)
            WHERE org_id = p_org AND id = p_session;
            promoted := NULL;
            ended := NULL;
            touched_ms := NULL;
            input := 0;
            output := 0;
            reasoning := 0;
            cache_read := 0;
            cache_write := 0;
            cost := 0;
        END IF;
        EXIT WHEN i > n;
        p_session := p_sessions[i];
        number := p_numbers[i];
        at_seq := p_seqs[i];
        at_ms := p_times[i];
        IF p_kinds[i] IN ('turn.settled', 'compaction.ended', 'title.ended') THEN
            u_input := coalesce((p#>>'{usage,input}')::bigint, 0);
            u_output := coalesce((p#>>'{usage,output}')::bigint, 0);
            u_reasoning := coalesce((p#>>'{usage,reasoning}')::bigint, 0);
            u_cache_read := coalesce((p#>>'{usage,cache_read}')::bigint, 0);
            u_cache_write := coalesce((p#>>'{usage,cache_write}')::bigint, 0);
            u_cost := coalesce((p#>>'{usage,cost}')::bigint, 0);
        END IF;
        -- The most frequent first: each comparison before costs.
        CASE p_kinds[i]
        WHEN 'prompt.promoted' THEN
            UPDATE session_input SET status = 'promoted', promoted_seq = at_seq
            WHERE org_id = p_org AND id = p->>'message';
            promoted := p;
            touched_ms := at_ms;
        WHEN 'turn.started' THEN
            IF p ? 'notice' THEN
                UPDATE session SET notices = (coalesce(notices, '[]')::jsonb || jsonb_build_object(
                    'provider', p#>>'{model,provider}', 'model', p#>>'{model,model}', 'text', p->>'notice',
                    'time', at_ms))::text
                WHERE org_id = p_org AND id = p_session;
            END IF;
        WHEN 'attempt.started' THEN
            -- Most often its session has named the list before.
            list := CASE WHEN jsonb_typeof(p->'components') = 'string' THEN decode(p->>'components', 'hex') END;
            IF list IS NULL OR NOT EXISTS
                (SELECT FROM session_component s WHERE s.incarnation = number AND s.hash = list) THEN
                PERFORM name_components(p_org, number, list, p->'components');
            END IF;
        WHEN 'attempt.ended' THEN
            NULL; -- the row of its attempt only says where that is in the log
        WHEN 'turn.replied' THEN
            reply := p;
            IF p_payloads[i] LIKE '%"tool-call"%' THEN
                UPDATE part SET place = parts.place
                FROM jsonb_array_elements(p->'parts') WITH ORDINALITY AS parts (item, place)
                WHERE part.incarnation = number AND part.message_id = p->>'message'
                    AND item->>'type' = 'tool-call' AND part.call_id = item->>'call';
            END IF;
        WHEN 'turn.settled' THEN
            UPDATE provider_turn SET status = 'settled', finish = coalesce(reply->>'finish', finish),
                outcome = p->>'outcome', error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                input_tokens = u_input, output_tokens = u_output, reasoning_tokens = u_reasoning,
                cache_read_tokens = u_cache_read, cache_write_tokens = u_cache_write, cost_nanos = u_cost,
                ended_ms = at_ms
            WHERE org_id = p_org AND id = p->>'turn';
            IF p->>'outcome' IN ('lost', 'overflowed') THEN
                -- Nothing of it was durable: the next turn starts over with a message of its own.
                DELETE FROM message WHERE org_id = p_org AND id = p->>'message';
            ELSE
                UPDATE message SET completed_ms = at_ms, finish = coalesce(reply->>'finish', finish),
                    error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                    input_tokens = u_input, output_tokens = u_output, reasoning_tokens = u_reasoning,
                    cache_read_tokens = u_cache_read, cache_write_tokens = u_cache_write, cost_nanos = u_cost
                WHERE org_id = p_org AND id = p->>'message';
            END IF;
            reply := NULL;
            input := add_counts(input, u_input);
            output := add_counts(output, u_output);
            reasoning := add_counts(reasoning, u_reasoning);
            cache_read := add_counts(cache_read, u_cache_read);
            cache_write := add_counts(cache_write, u_cache_write);
            cost := add_counts(cost, u_cost);
            touched_ms := at_ms;
        WHEN 'drain.ended' THEN
            ended := p->>'outcome';
            touched_ms := at_ms;
        WHEN 'tool.called' THEN
            INSERT INTO tool_result (org_id, id, incarnation, turn_id, message_id, part_id, provider_call, tool,
                class, state, bodies, arguments, called_seq, called_ms, projector_version)
            VALUES (p_org, p#>>'{intent,call}', number, p->>'turn', p->>'message', p#>>'{intent,part}',
                p#>>'{intent,provider_call}', p#>>'{intent,tool}', p->>'class', p->>'state',
                CASE p->>'state' WHEN 'started' THEN 1 ELSE 0 END, p#>>'{intent,arguments}', at_seq, at_ms,
                projector);
            INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, call_id, projector_version)
            VALUES (p_org, p#>>'{intent,part}', number, p->>'message', at_seq, 1000000, 'tool',
                p#>>'{intent,call}', projector);
        WHEN 'tool.asked' THEN
            INSERT INTO ask (org_id, id, incarnation, call_id, action, asked_seq, expires_ms, status, projector_version)
            VALUES (p_org, p->>'ask', number, p->>'call', coalesce(p#>>'{about,action}', 'question'), at_seq,
                (p->>'expires')::bigint, 'pending', projector);
        WHEN 'tool.answered' THEN
            UPDATE ask SET status = 'answered', answered_seq = at_seq WHERE org_id = p_org AND id = p->>'ask';
        WHEN 'tool.settled' THEN
            UPDATE ask SET status = 'withdrawn'
            WHERE incarnation = number AND call_id = p->>'call' AND status = 'pending';
            UPDATE tool_result SET state = 'settled', settled_seq = at_seq, outcome = p->>'outcome',
                title = p->>'title', structured = p->>'structured', bounded_text = p->>'output',
                managed_path = p->>'managed_path', truncated = (p->>'truncated')::boolean,
                started_ms = (p->>'started')::bigint, ended_ms = (p->>'ended')::bigint
            WHERE org_id = p_org AND id = p->>'call';
        WHEN 'tool.started' THEN
            UPDATE tool_result SET state = 'started', bodies = (p->>'body')::integer
            WHERE org_id = p_org AND id = p->>'call';
        WHEN 'text.checkpointed' THEN
            INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
            SELECT p_org, p->>'part', number, turn.message_id, at_seq, 0, 'text', p->>'text',
                projector
            FROM provider_turn AS turn WHERE turn.org_id = p_org AND turn.id = p->>'turn'
            ON CONFLICT (incarnation, message_id, id) DO UPDATE SET text = part.text || excluded.text;
        WHEN 'session.created' THEN
            INSERT INTO session (org_id, id, project_id, location_id, directory, title, titled, parent_id, agent,
                provider, model, variant, metadata, created_ms, updated_ms, projector_version, incarnation)
            VALUES (p_org, p_session, p->>'project', p->>'location', p->>'directory', p->>'title',
                coalesce((p->>'named')::boolean, false), p->>'parent', p->>'agent', p#>>'{model,provider}',
                p#>>'{model,model}', p#>>'{model,variant}', p->>'metadata', at_ms, at_ms, projector, number);
        WHEN 'prompt.admitted' THEN
            INSERT INTO session_input (org_id, id, incarnation, kind, delivery, status, admitted_seq,
                admitted_ms, wake_seq, projector_version)
            VALUES (p_org, p->>'message', number,
                CASE WHEN p ? 'synthetic' THEN 'synthetic' ELSE 'prompt' END, p->>'delivery', 'admitted', at_seq, at_ms, CASE WHEN (p->>'wake')::boolean THEN at_seq ELSE 0 END, projector);
        WHEN 'epoch.started' THEN
            INSERT INTO context_epoch (org_id, incarnation, epoch, reason, baseline, snapshot, started_seq,
                projector_version)
            VALUES (p_org, number, (p->>'epoch')::integer, p->>'reason', p->>'baseline', p->>'snapshot',
                at_seq, projector);
        WHEN 'context.updated' THEN
            INSERT INTO mid_conversation_system_message (org_id, id, incarnation, rendered, seq,
                projector_version)
            VALUES (p_org, p->>'message', number, p->>'rendered', at_seq, projector);
            UPDATE context_epoch SET snapshot = p->>'snapshot'
            WHERE org_id = p_org AND incarnation = number AND epoch =
                (SELECT max(epoch) FROM context_epoch WHERE org_id = p_org AND incarnation = number);
        WHEN 'notice.recorded' THEN
            INSERT INTO message (org_id, id, incarnation, seq, role, created_ms, completed_ms, finish,
                projector_version)
            VALUES (p_org, p->>'message', number, at_seq, 'notice', at_ms, at_ms, p->>'kind', projector);
            INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
            VALUES (p_org, 'prt' || substr(p->>'message', 4), number, p->>'message', at_seq, 1, 'text',
                p->>'text', projector);
        WHEN 'workspace.snapshotted' THEN
            INSERT INTO workspace_change (org_id, incarnation, seq, turn_id, base, tree, parent, files, more,
                projector_version)
            VALUES (p_org, number, at_seq, p->>'turn', coalesce((p->>'base')::boolean, false), p->>'tree',
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
        WHEN 'session.archived' THEN
            UPDATE session SET archived_ms = (p->>'archived')::bigint WHERE org_id = p_org AND id = p_session;
        WHEN 'session.described' THEN
            UPDATE session SET metadata = p->>'metadata' WHERE org_id = p_org AND id = p_session;
            touched_ms := at_ms;
        WHEN 'title.started' THEN
            INSERT INTO provider_turn (org_id, id, incarnation, message_id, seq, kind, agent, provider, model,
                epoch, step, status, started_ms, projector_version)
            VALUES (p_org, p->>'turn', number, p->>'message', at_seq, 'title', p->>'agent',
                p#>>'{model,provider}', p#>>'{model,model}', 0, 0, 'open', at_ms, projector);
        WHEN 'compaction.started' THEN
            INSERT INTO provider_turn (org_id, id, incarnation, message_id, seq, kind, reason, agent, provider,
                model, epoch, step, status, started_ms, projector_version)
            VALUES (p_org, p->>'turn', number, p->>'message', at_seq, 'compaction', p->>'reason', p->>'agent',
                p#>>'{model,provider}', p#>>'{model,model}', (p->>'epoch')::integer, 0, 'open', at_ms, projector);
            UPDATE session SET compacting_ms = at_ms WHERE org_id = p_org AND id = p_session;
        WHEN 'compaction.ended', 'title.ended' THEN
            UPDATE provider_turn SET status = 'settled', outcome = p->>'outcome', error_code = p#>>'{error,code}',
                error_message = p#>>'{error,message}', input_tokens = u_input, output_tokens = u_output,
                reasoning_tokens = u_reasoning, cache_read_tokens = u_cache_read,
                cache_write_tokens = u_cache_write, cost_nanos = u_cost, ended_ms = at_ms
            WHERE org_id = p_org AND id = p->>'turn';
            IF p_kinds[i] = 'compaction.ended' THEN
                UPDATE session SET compacting_ms = NULL WHERE org_id = p_org AND id = p_session;
                IF p->>'outcome' = 'completed' THEN
                    INSERT INTO message (org_id, id, incarnation, seq, role, turn_id, agent, provider, model,
                        created_ms, completed_ms, finish, input_tokens, output_tokens, reasoning_tokens,
                        cache_read_tokens, cache_write_tokens, cost_nanos, projector_version)
                    SELECT p_org, turn.message_id, number, at_seq, 'checkpoint', turn.id, turn.agent,
                        turn.provider, turn.model, turn.started_ms, at_ms, turn.reason, u_input, u_output,
                        u_reasoning, u_cache_read, u_cache_write, u_cost, projector
                    FROM provider_turn AS turn WHERE turn.org_id = p_org AND turn.id = p->>'turn';
                    INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
                    VALUES (p_org, 'prt' || substr(p->>'message', 4), number, p->>'message', at_seq, 1, 'text',
                        p->>'checkpoint', projector);
                END IF;
            END IF;
            input := add_counts(input, u_input);
            output := add_counts(output, u_output);
            reasoning := add_counts(reasoning, u_reasoning);
            cache_read := add_counts(cache_read, u_cache_read);
            cache_write := add_counts(cache_write, u_cache_write);
            cost := add_counts(cost, u_cost);
            touched_ms := at_ms;
        WHEN 'control.admitted' THEN
            INSERT INTO session_input (org_id, id, incarnation, kind, delivery, status, admitted_seq,
                admitted_ms, wake_seq, projector_version)
            VALUES (p_org, p->>'message', number, p#>>'{control,type}', p->>'delivery', 'admitted', at_seq, at_ms, CASE WHEN (p->>'wake')::boolean THEN at_seq ELSE 0 END, projector);
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
            WHERE i.org_id = p_org AND i.incarnation = number AND i.status = 'admitted'
                AND (p->>'scope' IS DISTINCT FROM 'steer' OR i.delivery = 'steer'
                    OR i.kind NOT IN ('prompt', 'synthetic') AND NOT EXISTS (
                        SELECT FROM session_input q WHERE q.org_id = p_org AND q.incarnation = number
                            AND q.status = 'admitted' AND q.delivery = 'queue'
                            AND q.kind IN ('prompt', 'synthetic') AND q.admitted_seq < i.admitted_seq));
        WHEN 'entry.set' THEN
            INSERT INTO session_entry (org_id, incarnation, key, value, seq, projector_version)
            VALUES (p_org, number, p->>'key', p->>'value', at_seq, projector)
            ON CONFLICT (incarnation, key) DO UPDATE SET value = excluded.value, seq = excluded.seq;
        WHEN 'entry.removed' THEN
            DELETE FROM session_entry WHERE org_id = p_org AND incarnation = number AND key = p->>'key';
        WHEN 'session.moved' THEN
            INSERT INTO left_location (org_id, incarnation, location_id, projector_version)
            VALUES (p_org, number, p->>'from', projector) ON CONFLICT DO NOTHING;
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
            DELETE FROM part WHERE org_id = p_org AND incarnation = number AND seq >= (p->>'from')::bigint;
            DELETE FROM message WHERE org_id = p_org AND incarnation = number AND seq >= (p->>'from')::bigint;
            DELETE FROM mid_conversation_system_message
            WHERE org_id = p_org AND incarnation = number AND seq >= (p->>'from')::bigint;
            -- The model has been told what it had been told then.
            DELETE FROM context_epoch
            WHERE org_id = p_org AND incarnation = number
                AND epoch > coalesce((p#>>'{back,epoch}')::integer, 0);
            UPDATE context_epoch SET snapshot = p#>>'{back,snapshot}'
            WHERE org_id = p_org AND incarnation = number AND epoch = (p#>>'{back,epoch}')::integer
                AND p#>>'{back,snapshot}' IS NOT NULL;
            touched_ms := at_ms;
        WHEN 'retry.scheduled', 'interrupt.requested', 'compaction.reminded', 'workspace.restored' THEN
            NULL; -- read from the log; no projection shows them
        ELSE
            RAISE EXCEPTION 'event kind % has no projection', p_kinds[i] USING ERRCODE = 'OC002';
        END CASE;
    END LOOP;
END $$;
