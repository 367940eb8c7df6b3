-- Calls that wait at the same time share a statement: a batch is the calls of one organisation, at most one
-- a session. What a commit, a round trip and the start of a statement cost is paid once for all of them.
--
-- Rows are inserted together and looked up one by one: a join with a batch has a plan for a table's size in
-- that moment, and a connection would keep reading all of an organisation that was small once.
--
-- A batch waits for nobody's lock: what is locked, and whatever is not the common case, is left out, and its
-- caller calls again on its own. So a batch cannot deadlock, and nobody waits for another's slow session.
SET LOCAL ROLE oc_owner;

-- admit_prompt() for several: the places of those that were admitted, with their numbers and Locations.
CREATE FUNCTION admit_prompts(
    p_org uuid, p_sessions text[], p_messages text[], p_kinds text[], p_deliveries text[], p_wakes boolean[],
    p_events text[], p_stamps bigint[], p_times bigint[], p_payloads text[])
RETURNS TABLE (place integer, seq bigint, location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    projector CONSTANT smallint := projector_version();
    places integer[];
    seqs bigint[];
    locations text[];
    at_seq bigint;
    at_location text;
BEGIN
    FOR i IN 1 .. cardinality(p_sessions) LOOP
        UPDATE session_head h SET next_seq = h.next_seq + 1, pending = h.pending + 1,
            wake_seq = CASE WHEN p_wakes[i] THEN h.next_seq ELSE h.wake_seq END,
            last_id = greatest(h.last_id, p_stamps[i])
        WHERE h.org_id = p_org AND h.id = p_sessions[i] AND h.staged_seq = 0
            AND (SELECT true FROM session_head l WHERE l.org_id = p_org AND l.id = p_sessions[i]
                FOR NO KEY UPDATE SKIP LOCKED)
            AND NOT EXISTS (SELECT FROM session_input n WHERE n.org_id = p_org AND n.id = p_messages[i])
            AND NOT EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_messages[i])
        RETURNING h.next_seq - 1, h.location_id INTO at_seq, at_location;
        IF FOUND THEN
            places := places || i;
            seqs := seqs || at_seq;
            locations := locations || at_location;
        END IF;
    END LOOP;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    SELECT p_org, p_sessions[t.i], t.n, p_events[t.i], 'prompt.admitted', 1, p_times[t.i], p_payloads[t.i]
    FROM unnest(places, seqs) AS t (i, n);
    INSERT INTO session_input (org_id, id, session_id, kind, delivery, status, payload, admitted_seq,
        admitted_ms, wake_seq, projector_version)
    SELECT p_org, p_messages[t.i], p_sessions[t.i], p_kinds[t.i], p_deliveries[t.i], 'admitted', p_payloads[t.i],
        t.n, p_times[t.i], CASE WHEN p_wakes[t.i] THEN t.n ELSE 0 END, projector
    FROM unnest(places, seqs) AS t (i, n);
    RETURN QUERY SELECT * FROM unnest(places, seqs, locations);
END $$;

-- look_at_drain() without a lock for several: a row each.
CREATE FUNCTION look_at_drains(
    p_org uuid, p_sessions text[], p_locations text[], p_tokens bigint[], p_knowns bigint[], p_limit bigint)
RETURNS TABLE (place bigint, outcome text, claim bigint, next_seq bigint, last_id bigint, interrupt_seq bigint,
    was_open boolean, handed_over boolean, recoveries smallint, after bigint, ids text[], kinds text[],
    versions integer[], times bigint[], claims bigint[], payloads text[])
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
BEGIN
    RETURN QUERY
    SELECT a.place,
        CASE WHEN h.id IS NULL THEN 'missing' WHEN NOT h.ready THEN 'idle'
            WHEN l.id IS NULL THEN 'superseded' ELSE 'ready' END,
        h.claim, h.next_seq, h.last_id, h.interrupt_seq, h.open, h.handed_over, h.recoveries,
        CASE WHEN a.known < h.next_seq THEN a.known ELSE 0 END,
        log.ids, log.kinds, log.versions, log.times, log.claims, log.payloads
    FROM unnest(p_sessions, p_locations, p_tokens, p_knowns) WITH ORDINALITY
        AS a (session, location, token, known, place)
    LEFT JOIN LATERAL (SELECT * FROM session_head s WHERE s.org_id = p_org AND s.id = a.session
        AND s.location_id = a.location LIMIT 1) AS h ON true
    LEFT JOIN LATERAL (SELECT * FROM location s WHERE s.org_id = p_org AND s.id = a.location
        AND s.fence = a.token LIMIT 1) AS l ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(e.id) AS ids, array_agg(e.kind) AS kinds, array_agg(e.version) AS versions,
            array_agg(e.time_ms) AS times, array_agg(e.claim) AS claims, array_agg(e.payload) AS payloads
        FROM (SELECT * FROM session_event s WHERE s.org_id = p_org AND s.session_id = h.id
            AND s.seq > (CASE WHEN a.known < h.next_seq THEN a.known ELSE 0 END) AND s.seq < h.next_seq
            ORDER BY s.seq LIMIT p_limit) AS e) AS log ON h.ready AND l.id IS NOT NULL;
END $$;

-- read_log() for several: the rows of each, in order. No row for one without news; whether it is there at all
-- is for its caller to ask.
CREATE FUNCTION read_logs(p_org uuid, p_sessions text[], p_after bigint[], p_limit bigint)
RETURNS TABLE (place bigint, seq bigint, id text, kind text, version integer, time_ms bigint, claim bigint,
    payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
BEGIN
    RETURN QUERY SELECT a.place, e.seq, e.id, e.kind, e.version, e.time_ms, e.claim, e.payload
    FROM unnest(p_sessions, p_after) WITH ORDINALITY AS a (session, after, place)
    CROSS JOIN LATERAL (SELECT * FROM session_event s WHERE s.org_id = p_org AND s.session_id = a.session
        AND s.seq > a.after ORDER BY s.seq LIMIT p_limit) AS e;
END $$;

-- Whether project_plain_events() can fold it: what it writes does not depend on the events beside it.
CREATE FUNCTION is_plain_event(p_kind text, p_payload text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE p_kind
    WHEN 'turn.replied' THEN p_payload NOT LIKE '%"tool-call"%'
    WHEN 'turn.settled' THEN p_payload::json->>'outcome' NOT IN ('lost', 'overflowed')
    ELSE p_kind IN ('prompt.promoted', 'turn.started', 'attempt.started', 'attempt.ended', 'drain.ended',
        'retry.scheduled', 'interrupt.requested')
END;

-- project_events() for plain events of several sessions, those of one after those of the other: the same rows.
-- What makes a row comes before what changes it.
CREATE FUNCTION project_plain_events(
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
            created_ms, completed_ms, synthetic, projector_version)
        SELECT p_org, e.p->>'message', e.session, e.seq, said.role,
            CASE said.role WHEN 'assistant' THEN e.p->>'parent' END,
            CASE said.role WHEN 'assistant' THEN e.p->>'turn' END,
            e.p->>'agent', e.p#>>'{model,provider}', e.p#>>'{model,model}',
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
            epoch, through_seq, components, started_ms, projector_version)
        SELECT p_org, e.p->>'attempt', e.session, e.p->>'turn', (e.p->>'ordinal')::integer, e.seq,
            (e.p->>'wire_version')::integer, e.p->>'body_hash', (e.p->>'epoch')::integer,
            (e.p->>'through')::bigint, e.payload::json->>'components', e.at_ms, projector
        FROM unnest(p_sessions, p_seqs, p_times, p_kinds, docs, p_payloads)
            AS e (session, seq, at_ms, kind, p, payload)
        WHERE e.kind = 'attempt.started';
    END IF;
    IF 'turn.replied' = ANY (p_kinds) THEN
        INSERT INTO part (org_id, id, session_id, message_id, seq, place, kind, text, projector_version)
        SELECT p_org, item->>'id', e.session, e.p->>'message', e.seq, place, item->>'type', item->>'text',
            projector
        FROM unnest(p_sessions, p_seqs, p_kinds, docs) AS e (session, seq, kind, p),
            jsonb_array_elements(e.p->'parts') WITH ORDINALITY AS parts (item, place)
        WHERE e.kind = 'turn.replied' AND item->>'type' IN ('text', 'reasoning')
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

-- write_drain() for several, without the head's lock before it: the places of those that were written.
-- Events name their write by its place (`p_owners`), and have the numbers that their writes are based on.
CREATE FUNCTION write_drains(
    p_org uuid, p_sessions text[], p_locations text[], p_tokens bigint[], p_held bigint[], p_firsts bigint[],
    p_counts integer[], p_promoted integer[], p_stamps bigint[], p_ends text[], p_progress boolean[],
    p_nows bigint[], p_owners integer[], p_seqs bigint[], p_ids text[], p_kinds text[], p_versions integer[],
    p_payloads text[], p_hashes bytea[], p_bytes bytea[])
RETURNS integer[] LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    written integer[];
    waiting integer[];
    slow integer[];
    place integer;
    waits boolean;
    e_owners integer[] := p_owners;
    e_seqs bigint[] := p_seqs;
    e_kinds text[] := p_kinds;
    e_payloads text[] := p_payloads;
BEGIN
    FOR i IN 1 .. cardinality(p_sessions) LOOP
        -- Before the look at the fence, in a statement of its own: it is not being raised now.
        CONTINUE WHEN p_tokens[i] IS NOT NULL
            AND NOT pg_try_advisory_xact_lock_shared(location_lock(p_org, p_locations[i]));
        UPDATE session_head h SET next_seq = h.next_seq + p_counts[i], pending = h.pending - p_promoted[i],
            last_id = greatest(h.last_id, p_stamps[i]),
            open = (p_ends[i] IN ('keep', 'hand-over')),
            handed_over = (p_ends[i] = 'hand-over'),
            claim = h.claim + (CASE WHEN p_tokens[i] IS NULL THEN 0 ELSE 1 END)
                + (CASE p_ends[i] WHEN 'keep' THEN 0 ELSE 1 END),
            parked_seq = CASE WHEN p_ends[i] = 'park' OR (p_ends[i] = 'close' AND h.pending = p_promoted[i])
                THEN greatest(h.parked_seq, h.wake_seq) ELSE h.parked_seq END,
            recoveries = CASE WHEN p_progress[i] OR p_ends[i] IN ('close', 'park') THEN 0
                WHEN p_tokens[i] IS NOT NULL AND h.open AND NOT h.handed_over THEN h.recoveries + 1
                ELSE h.recoveries END
        WHERE h.org_id = p_org AND h.id = p_sessions[i] AND h.location_id = p_locations[i]
            AND h.claim = p_held[i] AND h.next_seq = p_firsts[i]
            AND (SELECT true FROM session_head l WHERE l.org_id = p_org AND l.id = p_sessions[i]
                FOR NO KEY UPDATE SKIP LOCKED)
            AND (p_tokens[i] IS NULL OR EXISTS (SELECT FROM location l
                WHERE l.org_id = p_org AND l.id = p_locations[i] AND l.fence = p_tokens[i]))
        RETURNING h.pending > 0 AND p_ends[i] = 'close' INTO waits;
        IF FOUND THEN
            written := written || i;
            IF waits THEN
                waiting := waiting || i;
            END IF;
        END IF;
    END LOOP;
    IF written IS NULL THEN
        RETURN '{}';
    END IF;
    IF cardinality(written) < cardinality(p_sessions) THEN
        SELECT array_agg(e.owner ORDER BY e.i), array_agg(e.seq ORDER BY e.i), array_agg(e.id ORDER BY e.i),
            array_agg(e.kind ORDER BY e.i), array_agg(e.version ORDER BY e.i), array_agg(e.payload ORDER BY e.i)
        INTO e_owners, e_seqs, p_ids, e_kinds, p_versions, e_payloads
        FROM unnest(p_owners, p_seqs, p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
            AS e (owner, seq, id, kind, version, payload, i)
        WHERE e.owner = ANY (written);
    END IF;
    IF cardinality(p_hashes) > 0 THEN
        INSERT INTO request_component (org_id, hash, bytes)
        SELECT p_org, new.hash, new.bytes FROM unnest(p_hashes, p_bytes) AS new (hash, bytes)
        ORDER BY new.hash ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload)
    SELECT p_org, p_sessions[e.owner], e.seq, e.id, e.kind, e.version, p_nows[e.owner],
        p_held[e.owner] + (CASE WHEN p_tokens[e.owner] IS NULL THEN 0 ELSE 1 END), e.payload
    FROM unnest(e_owners, e_seqs, p_ids, e_kinds, p_versions, e_payloads)
        AS e (owner, seq, id, kind, version, payload);
    SELECT array_agg(DISTINCT e.owner) INTO slow FROM unnest(e_owners, e_kinds, e_payloads)
        AS e (owner, kind, payload) WHERE NOT is_plain_event(e.kind, e.payload);
    IF slow IS NOT NULL THEN
        FOREACH place IN ARRAY slow LOOP
            PERFORM project_events(p_org, p_sessions[place], p_firsts[place],
                array_fill(p_nows[place], ARRAY[p_counts[place]]), array_agg(e.kind ORDER BY e.seq),
                array_agg(e.payload ORDER BY e.seq))
            FROM unnest(e_owners, e_seqs, e_kinds, e_payloads) AS e (owner, seq, kind, payload)
            WHERE e.owner = place;
        END LOOP;
    END IF;
    IF slow IS NULL THEN
        PERFORM project_plain_events(p_org, array_agg(p_sessions[e.owner]), e_seqs, array_agg(p_nows[e.owner]),
            e_kinds, e_payloads) FROM unnest(e_owners) AS e (owner);
    ELSIF cardinality(slow) < cardinality(written) THEN
        PERFORM project_plain_events(p_org, array_agg(p_sessions[e.owner] ORDER BY e.i),
            array_agg(e.seq ORDER BY e.i), array_agg(p_nows[e.owner] ORDER BY e.i), array_agg(e.kind ORDER BY e.i),
            array_agg(e.payload ORDER BY e.i))
        FROM unnest(e_owners, e_seqs, e_kinds, e_payloads) WITH ORDINALITY AS e (owner, seq, kind, payload, i)
        WHERE e.owner <> ALL (slow);
    END IF;
    IF waiting IS NOT NULL THEN
        FOREACH place IN ARRAY waiting LOOP
            PERFORM spend_wakes(p_org, p_sessions[place]);
        END LOOP;
    END IF;
    RETURN written;
END $$;

REVOKE ALL ON FUNCTION admit_prompts, look_at_drains, read_logs, is_plain_event,
    project_plain_events, write_drains FROM PUBLIC;
GRANT EXECUTE ON FUNCTION admit_prompts, look_at_drains, read_logs, is_plain_event,
    project_plain_events, write_drains TO oc_app, oc_migrate;
RESET ROLE;
