-- Admits a control: one row, one event, one commit. 'admitted', 'retry' (the first row stands), 'pending'
-- (a compaction waits already, and is the one that is returned), 'conflict' (the id is another's), 'busy' (a
-- Revert and its end want an idle session), 'nowhere' (there is no Location to move to), 'full' (the inbox is) or 'missing'.
-- `seq` is the admission's number.
CREATE OR REPLACE FUNCTION admit_control(
    p_org uuid, p_session text, p_message text, p_kind text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text,
    OUT outcome text, OUT seq bigint, OUT location text, OUT admitted_ms bigint, OUT payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    first record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.incarnation, h.location_id, h.parked_seq, h.ready OR h.open AS busy, h.staged_seq, h.pending INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    SELECT i.*, e.payload INTO first FROM session_input i JOIN session_event e
        ON e.incarnation = i.incarnation AND e.seq = i.admitted_seq
    WHERE i.org_id = p_org AND i.id = p_message;
    IF FOUND THEN
        outcome := CASE WHEN first.incarnation = head.incarnation AND first.kind = p_kind
            AND first.payload::json->>'delivery' = p_delivery
            AND first.payload::json->>'digest' = p_digest THEN 'retry' ELSE 'conflict' END;
    ELSIF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message) THEN
        outcome := 'conflict';
    ELSIF p_kind IN ('revert', 'unrevert') AND (head.busy OR EXISTS (
            -- Input that waits without a wake would be promoted first. Input that the staged Revert holds is not.
            SELECT FROM session_input i WHERE i.org_id = p_org AND i.incarnation = head.incarnation
                AND i.status = 'admitted'
                AND NOT (i.kind = 'synthetic' AND i.wake_seq = 0
                    AND is_held(p_org, head.incarnation, head.staged_seq, i.admitted_seq)))) THEN
        outcome := 'busy';
    ELSIF p_kind = 'move' THEN
        -- Locked, so that it is not deleted before the Move waits for its turn.
        PERFORM FROM location l
        WHERE l.org_id = p_org AND l.id = p_payload::json#>>'{control,location}' FOR KEY SHARE;
        IF NOT FOUND THEN
            outcome := 'nowhere';
        END IF;
    ELSIF p_kind = 'compaction' THEN
        SELECT i.*, e.payload INTO first FROM session_input i JOIN session_event e
            ON e.incarnation = i.incarnation AND e.seq = i.admitted_seq
        WHERE i.org_id = p_org AND i.incarnation = head.incarnation AND i.status = 'admitted' AND i.kind = p_kind
        ORDER BY i.admitted_seq LIMIT 1;
        IF FOUND THEN
            outcome := 'pending';
            IF p_wake AND first.wake_seq <= head.parked_seq THEN
                -- It was only stored, or parked by an interrupt: this one is to run.
                PERFORM log_event(p_org, p_session, 'delivery.changed', p_event, p_stamp, p_now,
                    json_build_object('message', first.id, 'delivery', first.delivery, 'wake', true)::text, 0, true);
            END IF;
        END IF;
    END IF;
    IF outcome IS NULL AND NOT inbox_has_room(p_org, head.incarnation, head.pending, octet_length(p_payload)) THEN
        outcome := 'full';
        RETURN;
    END IF;
    IF outcome IS NOT NULL THEN
        seq := first.admitted_seq;
        admitted_ms := first.admitted_ms;
        payload := first.payload;
        RETURN;
    END IF;
    -- A racing admission of the same id at another session fails here on the key; the caller asks again.
    seq := log_event(p_org, p_session, 'control.admitted', p_event, p_stamp, p_now, p_payload, 1, p_wake);
    outcome := 'admitted';
    admitted_ms := p_now;
    payload := p_payload;
END $$;
