-- Calls that wait at the same time share a statement: a batch is the calls of one organisation, at most one
-- a session. What a commit, a round trip and the start of a statement cost is paid once for all of them.
--
-- A batch waits for nobody's lock: what is locked, and whatever is not the common case, is left out, and its
-- caller calls again on its own. So a batch cannot deadlock, and nobody waits for another's slow session.
SET LOCAL ROLE oc_owner;

-- admit_prompt() for several: the places of those that were admitted, with their numbers and Locations.
CREATE FUNCTION admit_prompts(
    p_org uuid, p_sessions text[], p_messages text[], p_kinds text[], p_deliveries text[], p_wakes boolean[],
    p_events text[], p_stamps bigint[], p_times bigint[], p_payloads text[])
RETURNS TABLE (place bigint, seq bigint, location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_sessions, p_messages, p_kinds, p_deliveries, p_wakes, p_events, p_stamps, p_times,
            p_payloads) WITH ORDINALITY
            AS a (session, message, kind, delivery, wake, event, stamp, at_ms, payload, place)),
    free AS MATERIALIZED (
        SELECT h.id FROM asked a JOIN session_head h ON h.org_id = p_org AND h.id = a.session
        FOR NO KEY UPDATE OF h SKIP LOCKED),
    taken AS (
        UPDATE session_head h SET next_seq = h.next_seq + 1, pending = h.pending + 1,
            wake_seq = CASE WHEN a.wake THEN h.next_seq ELSE h.wake_seq END,
            last_id = greatest(h.last_id, a.stamp)
        FROM free f JOIN asked a ON a.session = f.id
        WHERE h.org_id = p_org AND h.id = f.id AND h.staged_seq = 0
            AND NOT EXISTS (SELECT FROM session_input i WHERE i.org_id = p_org AND i.id = a.message)
            AND NOT EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = a.message)
        RETURNING a.place, h.next_seq - 1 AS seq, h.location_id),
    events AS (
        INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
        SELECT p_org, a.session, t.seq, a.event, 'prompt.admitted', 1, a.at_ms, a.payload
        FROM taken t JOIN asked a ON a.place = t.place),
    inputs AS (
        INSERT INTO session_input (org_id, id, session_id, kind, delivery, status, payload, admitted_seq,
            admitted_ms, wake_seq, projector_version)
        SELECT p_org, a.message, a.session, a.kind, a.delivery, 'admitted', a.payload, t.seq, a.at_ms,
            CASE WHEN a.wake THEN t.seq ELSE 0 END, projector_version()
        FROM taken t JOIN asked a ON a.place = t.place)
    SELECT t.place, t.seq, t.location_id FROM taken t;
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
    LEFT JOIN session_head h ON h.org_id = p_org AND h.id = a.session AND h.location_id = a.location
    LEFT JOIN location l ON l.org_id = p_org AND l.id = a.location AND l.fence = a.token
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

-- What replies and settlements say of their turns, together where they come together.
CREATE FUNCTION turn_ends(p_times bigint[], p_kinds text[], p_docs jsonb[])
RETURNS TABLE (turn text, message text, finish text, settled jsonb, at_ms bigint)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT e.p->>'turn', min(e.p->>'message'), max(e.p->>'finish') FILTER (WHERE e.kind = 'turn.replied'),
        (array_agg(e.p) FILTER (WHERE e.kind = 'turn.settled'))[1],
        max(e.at_ms) FILTER (WHERE e.kind = 'turn.settled')
    FROM unnest(p_times, p_kinds, p_docs) AS e (at_ms, kind, p)
    WHERE e.kind IN ('turn.replied', 'turn.settled')
    GROUP BY e.p->>'turn';
END;

-- project_events() for plain events of several sessions: the same rows, with a statement for each kind of row
-- instead of one for each event. What makes a row comes before what changes it.
CREATE FUNCTION project_plain_events(
    p_org uuid, p_sessions text[], p_seqs bigint[], p_times bigint[], p_kinds text[], p_payloads text[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    projector CONSTANT smallint := projector_version();
    -- Parsed once.
    docs CONSTANT jsonb[] := p_payloads::jsonb[];
BEGIN
    IF 'prompt.promoted' = ANY (p_kinds) THEN
        UPDATE session_input i SET status = 'promoted', promoted_seq = e.seq
        FROM unnest(p_seqs, p_kinds, docs) AS e (seq, kind, p)
        WHERE e.kind = 'prompt.promoted' AND i.org_id = p_org AND i.id = e.p->>'message';
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
    IF 'attempt.ended' = ANY (p_kinds) THEN
        UPDATE provider_attempt a SET outcome = e.p->>'outcome', error_code = e.p#>>'{error,code}',
            error_message = e.p#>>'{error,message}', input_tokens = (e.p#>>'{usage,input}')::bigint,
            output_tokens = (e.p#>>'{usage,output}')::bigint, cost_nanos = (e.p#>>'{usage,cost}')::bigint,
            ended_ms = e.at_ms
        FROM unnest(p_times, p_kinds, docs) AS e (at_ms, kind, p)
        WHERE e.kind = 'attempt.ended' AND a.org_id = p_org AND a.id = e.p->>'attempt';
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
    IF p_kinds && ARRAY['turn.replied', 'turn.settled'] THEN
        -- A reply and its settlement come together, mostly: one row each.
        UPDATE provider_turn t SET status = CASE WHEN e.settled IS NULL THEN 'replied' ELSE 'settled' END,
            finish = coalesce(e.finish, t.finish), outcome = e.settled->>'outcome',
            error_code = e.settled#>>'{error,code}', error_message = e.settled#>>'{error,message}',
            input_tokens = coalesce((e.settled#>>'{usage,input}')::bigint, 0),
            output_tokens = coalesce((e.settled#>>'{usage,output}')::bigint, 0),
            reasoning_tokens = coalesce((e.settled#>>'{usage,reasoning}')::bigint, 0),
            cache_read_tokens = coalesce((e.settled#>>'{usage,cache_read}')::bigint, 0),
            cache_write_tokens = coalesce((e.settled#>>'{usage,cache_write}')::bigint, 0),
            cost_nanos = coalesce((e.settled#>>'{usage,cost}')::bigint, 0), ended_ms = e.at_ms
        FROM turn_ends(p_times, p_kinds, docs) AS e WHERE t.org_id = p_org AND t.id = e.turn;
        UPDATE message m SET finish = coalesce(e.finish, m.finish), completed_ms = e.at_ms,
            error_code = e.settled#>>'{error,code}', error_message = e.settled#>>'{error,message}',
            input_tokens = coalesce((e.settled#>>'{usage,input}')::bigint, 0),
            output_tokens = coalesce((e.settled#>>'{usage,output}')::bigint, 0),
            reasoning_tokens = coalesce((e.settled#>>'{usage,reasoning}')::bigint, 0),
            cache_read_tokens = coalesce((e.settled#>>'{usage,cache_read}')::bigint, 0),
            cache_write_tokens = coalesce((e.settled#>>'{usage,cache_write}')::bigint, 0),
            cost_nanos = coalesce((e.settled#>>'{usage,cost}')::bigint, 0)
        FROM turn_ends(p_times, p_kinds, docs) AS e WHERE m.org_id = p_org AND m.id = e.message;
    END IF;
    IF p_kinds && ARRAY['prompt.promoted', 'turn.settled', 'drain.ended'] THEN
        UPDATE session s SET updated_ms = e.at_ms, outcome = coalesce(e.ended, s.outcome),
            agent = coalesce(e.promoted->>'agent', s.agent),
            provider = coalesce(e.promoted#>>'{model,provider}', s.provider),
            model = coalesce(e.promoted#>>'{model,model}', s.model),
            input_tokens = s.input_tokens + e.input, output_tokens = s.output_tokens + e.output,
            reasoning_tokens = s.reasoning_tokens + e.reasoning,
            cache_read_tokens = s.cache_read_tokens + e.cache_read,
            cache_write_tokens = s.cache_write_tokens + e.cache_write, cost_nanos = s.cost_nanos + e.cost
        FROM (SELECT a.session, max(a.at_ms) AS at_ms,
                (array_agg(a.p ORDER BY a.seq DESC) FILTER (WHERE a.kind = 'prompt.promoted'))[1] AS promoted,
                (array_agg(a.p->>'outcome' ORDER BY a.seq DESC) FILTER (WHERE a.kind = 'drain.ended'))[1] AS ended,
                coalesce(sum((a.p#>>'{usage,input}')::bigint), 0)::bigint AS input,
                coalesce(sum((a.p#>>'{usage,output}')::bigint), 0)::bigint AS output,
                coalesce(sum((a.p#>>'{usage,reasoning}')::bigint), 0)::bigint AS reasoning,
                coalesce(sum((a.p#>>'{usage,cache_read}')::bigint), 0)::bigint AS cache_read,
                coalesce(sum((a.p#>>'{usage,cache_write}')::bigint), 0)::bigint AS cache_write,
                coalesce(sum((a.p#>>'{usage,cost}')::bigint), 0)::bigint AS cost
            FROM unnest(p_sessions, p_seqs, p_times, p_kinds, docs) AS a (session, seq, at_ms, kind, p)
            WHERE a.kind IN ('prompt.promoted', 'turn.settled', 'drain.ended')
            GROUP BY a.session) AS e
        WHERE s.org_id = p_org AND s.id = e.session;
    END IF;
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
    at_rest text[];
    written integer[];
    waiting integer[];
    slow integer[];
    place integer;
    e_owners integer[] := p_owners;
    e_seqs bigint[] := p_seqs;
    e_kinds text[] := p_kinds;
    e_payloads text[] := p_payloads;
BEGIN
    -- Before the look at the fences, in a statement of its own: none of these is being raised now.
    SELECT array_agg(new.location) INTO at_rest
    FROM (SELECT DISTINCT a.location FROM unnest(p_locations, p_tokens) AS a (location, token)
        WHERE a.token IS NOT NULL) AS new
    WHERE pg_try_advisory_xact_lock_shared(location_lock(p_org, new.location));
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_sessions, p_locations, p_tokens, p_held, p_firsts, p_counts, p_promoted, p_stamps,
            p_ends, p_progress) WITH ORDINALITY
            AS a (session, location, token, held, first, n, promoted, stamp, how, progress, place)),
    free AS MATERIALIZED (
        SELECT h.id FROM asked a JOIN session_head h ON h.org_id = p_org AND h.id = a.session
            AND h.location_id = a.location AND h.claim = a.held AND h.next_seq = a.first
        WHERE a.token IS NULL OR (a.location = ANY (at_rest) AND EXISTS (SELECT FROM location l
            WHERE l.org_id = p_org AND l.id = a.location AND l.fence = a.token))
        FOR NO KEY UPDATE OF h SKIP LOCKED),
    done AS (
        UPDATE session_head h SET next_seq = h.next_seq + a.n, pending = h.pending - a.promoted,
            last_id = greatest(h.last_id, a.stamp),
            open = (a.how IN ('keep', 'hand-over')),
            handed_over = (a.how = 'hand-over'),
            claim = h.claim + (CASE WHEN a.token IS NULL THEN 0 ELSE 1 END)
                + (CASE a.how WHEN 'keep' THEN 0 ELSE 1 END),
            parked_seq = CASE WHEN a.how = 'park' OR (a.how = 'close' AND h.pending = a.promoted)
                THEN greatest(h.parked_seq, h.wake_seq) ELSE h.parked_seq END,
            recoveries = CASE WHEN a.progress OR a.how IN ('close', 'park') THEN 0
                WHEN a.token IS NOT NULL AND h.open AND NOT h.handed_over THEN h.recoveries + 1
                ELSE h.recoveries END
        FROM free f JOIN asked a ON a.session = f.id
        WHERE h.org_id = p_org AND h.id = f.id AND h.claim = a.held AND h.next_seq = a.first
        RETURNING a.place::integer, h.pending > 0 AND a.how = 'close' AS waits)
    SELECT array_agg(d.place), array_agg(d.place) FILTER (WHERE d.waits) INTO written, waiting FROM done d;
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

REVOKE ALL ON FUNCTION admit_prompts, look_at_drains, read_logs, is_plain_event, turn_ends,
    project_plain_events, write_drains FROM PUBLIC;
GRANT EXECUTE ON FUNCTION admit_prompts, look_at_drains, read_logs, is_plain_event, turn_ends,
    project_plain_events, write_drains TO oc_app, oc_migrate;
RESET ROLE;
