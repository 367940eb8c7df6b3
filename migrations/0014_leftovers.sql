-- What a staged Revert holds outlives its being staged again; and whoever raises a Location's fence learns what it was.
SET LOCAL ROLE oc_owner;

-- Whether what was admitted at `p_admitted` waits for the end of the Revert that was staged last at `p_staged` (0:
-- none is), or that was staged before it at another message. The log is read only for what is older than that.
CREATE FUNCTION is_held(p_org uuid, p_session text, p_staged bigint, p_admitted bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT p_staged > 0 AND (p_admitted > p_staged OR (
        -- It was admitted while one was staged,
        EXISTS (SELECT FROM (
                SELECT e.kind FROM session_event e
                WHERE e.org_id = p_org AND e.session_id = p_session AND e.seq < p_admitted
                    AND e.kind IN ('revert.staged', 'revert.cleared', 'revert.committed')
                ORDER BY e.seq DESC LIMIT 1) AS last
            WHERE last.kind = 'revert.staged')
        -- which has become this one.
        AND NOT EXISTS (SELECT FROM session_event e
            WHERE e.org_id = p_org AND e.session_id = p_session AND e.seq > p_admitted AND e.seq < p_staged
                AND e.kind IN ('revert.cleared', 'revert.committed'))))
$$;

-- The synthetic input that waits for a staged Revert to end, and that nobody has woken the session for.
CREATE OR REPLACE FUNCTION held_inputs(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT i.id FROM session_head h JOIN session_input i ON i.org_id = h.org_id AND i.session_id = h.id
    WHERE h.org_id = p_org AND h.id = p_session AND h.staged_seq > 0
        AND i.status = 'admitted' AND i.kind = 'synthetic' AND i.wake_seq = 0
        AND is_held(p_org, p_session, h.staged_seq, i.admitted_seq)
    ORDER BY i.admitted_seq
$$;

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
                AND NOT (i.kind = 'synthetic' AND i.wake_seq = 0
                    AND is_held(p_org, p_session, head.staged_seq, i.admitted_seq)))) THEN
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

-- Makes `p_token` the fence of its Location, and fences every drain of an earlier holder. The fence before it: who
-- held the Location last knows by it that its files are those. `p_token` itself when it is the fence already; NULL
-- when a higher one has been here, or there is no such Location.
CREATE FUNCTION take_fence(p_org uuid, p_location text, p_token bigint)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    known bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(location_lock(p_org, p_location));
    SELECT fence INTO known FROM location WHERE org_id = p_org AND id = p_location;
    IF known >= p_token THEN
        RETURN CASE WHEN known = p_token THEN known END;
    END IF;
    UPDATE location SET fence = p_token WHERE org_id = p_org AND id = p_location;
    PERFORM FROM session_head
    WHERE org_id = p_org AND location_id = p_location AND (open OR pending > 0)
    ORDER BY id FOR UPDATE;
    UPDATE session_head SET claim = claim + 1
    WHERE org_id = p_org AND location_id = p_location AND (open OR pending > 0);
    RETURN known;
END $$;

-- Builds before this schema call it.
CREATE OR REPLACE FUNCTION raise_fence(p_org uuid, p_location text, p_token bigint)
RETURNS boolean LANGUAGE sql SET search_path = public, pg_temp AS $$
    SELECT take_fence(p_org, p_location, p_token) IS NOT NULL
$$;

REVOKE ALL ON FUNCTION is_held(uuid, text, bigint, bigint), take_fence(uuid, text, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION is_held(uuid, text, bigint, bigint), take_fence(uuid, text, bigint) TO oc_app, oc_migrate;
RESET ROLE;
