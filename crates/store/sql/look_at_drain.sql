-- Looks at a session for a drain's start: the head, and the events after `p_known` of the session `p_incarnation`, at most
-- `p_limit` and about page_bytes() bytes; from the first on, when the session with this id is another one now, or when its event
-- `p_known` has not the id `p_known_id`: the database came back without some commits (docs/decisions/0092). Takes no lock and
-- no transaction id; with `p_lock` it takes the Location's lock shared and then the head's. The build before gives no `p_known_id`.
-- 'ready', 'idle' (nothing to do), 'superseded' (a higher token has been at the Location), 'missing'.
CREATE OR REPLACE FUNCTION look_at_drain(
    p_org uuid, p_session text, p_location text, p_token bigint, p_incarnation bigint, p_known bigint,
    p_limit bigint, p_lock boolean, p_known_id text DEFAULT NULL,
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
    SELECT h.incarnation, h.claim, h.next_seq, h.last_id, h.interrupt_seq, h.open, h.handed_over, h.recoveries, h.ready
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
    after := CASE WHEN p_incarnation = head.incarnation AND p_known < head.next_seq
        AND (p_known_id IS NULL OR p_known_id = (SELECT k.id FROM session_event k WHERE k.org_id = p_org
            AND k.incarnation = head.incarnation AND k.seq = p_known)) THEN p_known ELSE 0 END;
    -- Without a lock the log may have grown since: what is read ends where the head was.
    SELECT array_agg(e.id), array_agg(e.kind), array_agg(e.version), array_agg(e.time_ms),
        array_agg(e.claim), array_agg(e.payload)
    INTO ids, kinds, versions, times, claims, payloads
    FROM (SELECT w.*, sum(octet_length(w.payload)) OVER (ORDER BY w.seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (SELECT * FROM session_event s WHERE s.org_id = p_org AND s.incarnation = head.incarnation
            AND s.seq > after AND s.seq < head.next_seq ORDER BY s.seq LIMIT p_limit) AS w) AS e
    WHERE coalesce(e.bytes_before, 0) < page_bytes();
END $$;
