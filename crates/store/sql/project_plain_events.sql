-- project_events() for plain events of several sessions, those of one after those of the other: the same rows.
-- What makes a row comes before what changes it.
CREATE OR REPLACE FUNCTION project_plain_events(
    p_org uuid, p_sessions text[], p_seqs bigint[], p_times bigint[], p_kinds text[], p_payloads text[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    projector CONSTANT smallint := projector_version();
    -- Parsed once.
    docs CONSTANT jsonb[] := p_payloads::jsonb[];
    p jsonb;
    -- A reply whose turn and message are not told its end yet, and what the session is told at its end.
    replied jsonb;
    promoted jsonb;
    ended text;
    touched boolean := false;
    input bigint := 0;
    output bigint := 0;
    reasoning bigint := 0;
    cache_read bigint := 0;
    cache_write bigint := 0;
    cost bigint := 0;
BEGIN
    IF 'prompt.promoted' = ANY (p_kinds) THEN
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', e.session, e.p->>'message', e.seq, place, 'text', item->>'text', projector
        FROM unnest(p_sessions, p_seqs, p_kinds, docs) AS e (session, seq, kind, p),
            jsonb_array_elements(e.p->'parts') WITH ORDINALITY AS parts (item, place)
        WHERE e.kind = 'prompt.promoted';
    END IF;
    IF p_kinds && ARRAY['prompt.promoted', 'turn.started'] THEN
        INSERT INTO message (org_id, id, session_id, seq, role, parent_id, turn_id, agent, provider, model,
            variant, created_ms, completed_ms, synthetic, projector_version)
        SELECT p_org, e.p->>'message', e.session, e.seq, said.role,
            CASE said.role WHEN 'assistant' THEN e.p->>'parent' END,
            CASE said.role WHEN 'assistant' THEN e.p->>'turn' END,
            e.p->>'agent', e.p#>>'{model,provider}', e.p#>>'{model,model}', e.p#>>'{model,variant}',
            CASE said.role WHEN 'user' THEN (e.p->>'admitted')::bigint ELSE e.at_ms END,
            CASE said.role WHEN 'user' THEN e.at_ms END,
            CASE said.role WHEN 'user' THEN e.p->>'synthetic' END, projector
        FROM unnest(p_sessions, p_seqs, p_times, p_kinds, docs) AS e (session, seq, at_ms, kind, p)
        JOIN (VALUES ('prompt.promoted', 'user'), ('turn.started', 'assistant')) AS said (kind, role)
            ON said.kind = e.kind;
    END IF;
    IF 'turn.started' = ANY (p_kinds) THEN
        INSERT INTO provider_turn (org_id, id, session_id, message_id, seq, agent, provider, model, epoch, step,
            status, started_ms, projector_version)
        SELECT p_org, e.p->>'turn', e.session, e.p->>'message', e.seq, e.p->>'agent', e.p#>>'{model,provider}',
            e.p#>>'{model,model}', (e.p->>'epoch')::integer, (e.p->>'step')::integer, 'open', e.at_ms, projector
        FROM unnest(p_sessions, p_seqs, p_times, p_kinds, docs) AS e (session, seq, at_ms, kind, p)
        WHERE e.kind = 'turn.started';
    END IF;
    IF 'attempt.started' = ANY (p_kinds) THEN
        INSERT INTO provider_attempt (org_id, id, session_id, turn_id, ordinal, seq, wire_version, body_hash,
            epoch, through_seq, components, price_version, estimate_nanos, started_ms, projector_version)
        SELECT p_org, e.p->>'attempt', e.session, e.p->>'turn', (e.p->>'ordinal')::integer, e.seq,
            (e.p->>'wire_version')::integer, e.p->>'body_hash', (e.p->>'epoch')::integer,
            (e.p->>'through')::bigint, e.payload::json->>'components', e.p#>>'{pricing,version}',
            (e.p#>>'{pricing,estimate,cost}')::bigint, e.at_ms, projector
        FROM unnest(p_sessions, p_seqs, p_times, p_kinds, docs, p_payloads)
            AS e (session, seq, at_ms, kind, p, payload)
        WHERE e.kind = 'attempt.started';
    END IF;
    IF 'turn.replied' = ANY (p_kinds) THEN
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', e.session, e.p->>'message', e.seq, place, item->>'type', reply_text(item),
            projector
        FROM unnest(p_sessions, p_seqs, p_kinds, docs) AS e (session, seq, kind, p),
            jsonb_array_elements(e.p->'parts') WITH ORDINALITY AS parts (item, place)
        WHERE e.kind = 'turn.replied' AND item->>'type' <> 'tool-call'
        ON CONFLICT (org_id, id) DO UPDATE SET place = excluded.place, text = excluded.text;
    END IF;
    FOR i IN 1 .. cardinality(p_kinds) LOOP
        p := docs[i];
        CASE p_kinds[i]
        WHEN 'prompt.promoted' THEN
            UPDATE session_input SET status = 'promoted', promoted_seq = p_seqs[i]
            WHERE org_id = p_org AND id = p->>'message';
            promoted := p;
            touched := true;
        WHEN 'attempt.ended' THEN
            UPDATE provider_attempt SET outcome = p->>'outcome', error_code = p#>>'{error,code}',
                error_message = p#>>'{error,message}', input_tokens = (p#>>'{usage,input}')::bigint,
                output_tokens = (p#>>'{usage,output}')::bigint, cost_nanos = (p#>>'{usage,cost}')::bigint,
                ended_ms = p_times[i]
            WHERE org_id = p_org AND id = p->>'attempt';
        WHEN 'turn.replied' THEN
            replied := p;
        WHEN 'turn.settled' THEN
            -- Its reply is mostly beside it: one row each.
            UPDATE provider_turn SET status = 'settled',
                finish = CASE WHEN replied->>'turn' = id THEN replied->>'finish' ELSE finish END,
                outcome = p->>'outcome', error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                input_tokens = (p#>>'{usage,input}')::bigint, output_tokens = (p#>>'{usage,output}')::bigint,
                reasoning_tokens = (p#>>'{usage,reasoning}')::bigint,
                cache_read_tokens = (p#>>'{usage,cache_read}')::bigint,
                cache_write_tokens = (p#>>'{usage,cache_write}')::bigint,
                cost_nanos = coalesce((p#>>'{usage,cost}')::bigint, 0), ended_ms = p_times[i]
            WHERE org_id = p_org AND id = p->>'turn';
            UPDATE message SET completed_ms = p_times[i],
                finish = CASE WHEN replied->>'message' = id THEN replied->>'finish' ELSE finish END,
                error_code = p#>>'{error,code}', error_message = p#>>'{error,message}',
                input_tokens = (p#>>'{usage,input}')::bigint, output_tokens = (p#>>'{usage,output}')::bigint,
                reasoning_tokens = (p#>>'{usage,reasoning}')::bigint,
                cache_read_tokens = (p#>>'{usage,cache_read}')::bigint,
                cache_write_tokens = (p#>>'{usage,cache_write}')::bigint,
                cost_nanos = coalesce((p#>>'{usage,cost}')::bigint, 0)
            WHERE org_id = p_org AND id = p->>'message';
            input := input + (p#>>'{usage,input}')::bigint;
            output := output + (p#>>'{usage,output}')::bigint;
            reasoning := reasoning + (p#>>'{usage,reasoning}')::bigint;
            cache_read := cache_read + (p#>>'{usage,cache_read}')::bigint;
            cache_write := cache_write + (p#>>'{usage,cache_write}')::bigint;
            cost := cost + coalesce((p#>>'{usage,cost}')::bigint, 0);
            replied := NULL;
            touched := true;
        WHEN 'drain.ended' THEN
            ended := p->>'outcome';
            touched := true;
        ELSE
            NULL; -- what it made is made, or no projection shows it
        END CASE;
        IF replied IS NOT NULL AND (p_sessions[i + 1] IS DISTINCT FROM p_sessions[i]
            OR p_kinds[i + 1] <> 'turn.settled' OR docs[i + 1]->>'turn' <> replied->>'turn') THEN
            UPDATE provider_turn SET status = 'replied', finish = replied->>'finish'
            WHERE org_id = p_org AND id = replied->>'turn';
            UPDATE message SET finish = replied->>'finish' WHERE org_id = p_org AND id = replied->>'message';
            replied := NULL;
        END IF;
        IF touched AND p_sessions[i + 1] IS DISTINCT FROM p_sessions[i] THEN
            UPDATE session SET updated_ms = p_times[i], outcome = coalesce(ended, outcome),
                agent = coalesce(promoted->>'agent', agent),
                provider = coalesce(promoted#>>'{model,provider}', provider),
                model = coalesce(promoted#>>'{model,model}', model),
                variant = CASE WHEN promoted IS NULL THEN variant ELSE promoted#>>'{model,variant}' END,
                input_tokens = input_tokens + input, output_tokens = output_tokens + output,
                reasoning_tokens = reasoning_tokens + reasoning,
                cache_read_tokens = cache_read_tokens + cache_read,
                cache_write_tokens = cache_write_tokens + cache_write, cost_nanos = cost_nanos + cost
            WHERE org_id = p_org AND id = p_sessions[i];
            promoted := NULL;
            ended := NULL;
            touched := false;
            input := 0;
            output := 0;
            reasoning := 0;
            cache_read := 0;
            cache_write := 0;
            cost := 0;
        END IF;
    END LOOP;
END $$;
