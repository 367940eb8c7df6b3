-- A drain's writes, each one statement on its own: what a write is based on was looked at before, without
-- a lock, and the write says so (claim and next number). A head that has moved since refuses it, and the
-- drain looks again, this time under the head's lock.
--
-- start_drain, prove_claim and append_events stay for workers of the version before.
SET LOCAL ROLE oc_owner;

-- What a drain's start is based on: the head, and the events after `p_known` (all of them, when a session
-- was made anew under its id and `p_known` is beyond it), at most `p_limit`. Takes no lock and no
-- transaction id; with `p_lock` it takes the Location's lock shared and then the head's.
-- 'ready', 'idle' (nothing to do), 'superseded' (a higher token has been at the Location), 'missing'.
CREATE FUNCTION look_at_drain(
    p_org uuid, p_session text, p_location text, p_token bigint, p_known bigint, p_limit bigint, p_lock boolean,
    OUT outcome text, OUT claim bigint, OUT next_seq bigint, OUT last_id bigint, OUT interrupt_seq bigint,
    OUT was_open boolean, OUT handed_over boolean, OUT recoveries smallint, OUT after bigint,
    OUT ids text[], OUT kinds text[], OUT versions integer[], OUT times bigint[], OUT claims bigint[],
    OUT payloads text[])
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF p_lock THEN
        PERFORM pg_advisory_xact_lock_shared(location_lock(p_org, p_location));
        PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    END IF;
    SELECT h.claim, h.next_seq, h.last_id, h.interrupt_seq, h.open, h.handed_over, h.recoveries, h.ready
    INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session AND h.location_id = p_location;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF NOT head.ready THEN
        outcome := 'idle';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM location l
        WHERE l.org_id = p_org AND l.id = p_location AND l.fence = p_token) THEN
        outcome := 'superseded';
        RETURN;
    END IF;
    outcome := 'ready';
    claim := head.claim;
    next_seq := head.next_seq;
    last_id := head.last_id;
    interrupt_seq := head.interrupt_seq;
    was_open := head.open;
    handed_over := head.handed_over;
    recoveries := head.recoveries;
    after := CASE WHEN p_known < head.next_seq THEN p_known ELSE 0 END;
    -- Without a lock the log may have grown since: what is read ends where the head was.
    SELECT array_agg(e.id), array_agg(e.kind), array_agg(e.version), array_agg(e.time_ms),
        array_agg(e.claim), array_agg(e.payload)
    INTO ids, kinds, versions, times, claims, payloads
    FROM (SELECT * FROM session_event e WHERE e.org_id = p_org AND e.session_id = p_session
        AND e.seq > after AND e.seq < head.next_seq ORDER BY e.seq LIMIT p_limit) AS e;
END $$;

-- One write of a drain, based on a head whose claim was `p_claim` and whose next number is `p_first`.
-- With `p_token` it starts the drain: it takes the Location's lock shared, finds the token still its fence
-- and raises the claim. 'written'; 'stale' (the head has moved: look again), 'fenced' (the claim has passed
-- on), 'superseded' (a higher token has been at the Location); only the first has changed anything.
--
-- `p_end`: 'keep' the drain, 'close' it, 'park' (close, and let what is pending wait for a new wake), or
-- 'hand-over' (stays open for the next holder). `p_progress` clears the recovery counter.
CREATE FUNCTION write_drain(
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
        UPDATE session_head h SET parked_seq = greatest(h.parked_seq, h.wake_seq)
        WHERE h.org_id = p_org AND h.id = p_session AND NOT EXISTS (
            SELECT FROM session_input i WHERE i.org_id = p_org AND i.session_id = p_session
                AND i.status = 'admitted' AND i.admitted_seq > h.parked_seq
                AND (i.payload::json->>'wake')::boolean);
    END IF;
    RETURN 'written';
END $$;

REVOKE ALL ON FUNCTION look_at_drain, write_drain FROM PUBLIC;
GRANT EXECUTE ON FUNCTION look_at_drain, write_drain TO oc_app, oc_migrate;
RESET ROLE;
