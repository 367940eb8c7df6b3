-- Admits a prompt: one row, one event, one commit. 'admitted', 'retry' (the first row stands),
-- 'conflict' (the id is another message's), 'full' (the inbox is) or 'missing'. `seq` is the admission's number.
--
-- A Revert that is staged in an idle session is committed before it, with ids of `p_spare`; in a busy one the
-- drain finds both. Until it ends synthetic input waits without a wake. 'staged': nothing is changed, and the
-- caller has `seq` ids to give, or a wake to take away.
CREATE OR REPLACE FUNCTION admit_prompt(
    p_org uuid, p_session text, p_message text, p_delivery text, p_digest text, p_wake boolean,
    p_event text, p_stamp bigint, p_now bigint, p_payload text, p_kind text DEFAULT 'prompt',
    p_spare text[] DEFAULT '{}',
    OUT outcome text, OUT seq bigint, OUT location text, OUT admitted_ms bigint, OUT payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    -- An assignment costs less than a statement.
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    first record;
    number bigint;
    staged bigint;
    busy boolean;
    waiting integer;
    needed bigint;
    -- So few prompts are always fewer bytes than an inbox may have.
    few CONSTANT integer := 5;
    size CONSTANT integer := octet_length(p_payload);
    has_room boolean := false;
BEGIN
    LOOP
        -- The common case in one statement: a new id. An id that is taken leaves the head as it is. That of a
        -- reply or a notice counts as taken: it would stop every later promotion on its key.
        UPDATE session_head SET next_seq = next_seq + 1, pending = pending + 1,
            wake_seq = CASE WHEN p_wake THEN next_seq ELSE wake_seq END,
            last_id = greatest(last_id, p_stamp), inbox_room = greatest(0, inbox_room - size)
        WHERE org_id = p_org AND id = p_session
            AND (staged_seq = 0 OR CASE p_kind WHEN 'prompt' THEN ready ELSE NOT p_wake END)
            AND (pending < few OR pending < 1000 AND inbox_room >= size OR has_room)
            AND NOT EXISTS (SELECT FROM session_input i WHERE i.org_id = p_org AND i.id = p_message)
            AND NOT EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message)
        RETURNING incarnation, next_seq - 1, location_id INTO number, seq, location;
        IF FOUND THEN
            INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
            VALUES (p_org, number, seq, p_event, 'prompt.admitted', 1, p_now, p_payload);
            INSERT INTO session_change (org_id, incarnation, session_id, first, last)
            VALUES (p_org, number, p_session, seq, seq);
            -- As project_events does it, without reading the payload. A racing admission of the same id fails
            -- here on the key, whole; the caller asks again and finds the other.
            INSERT INTO session_input (org_id, id, incarnation, kind, delivery, status, admitted_seq,
                admitted_ms, wake_seq, projector_version)
            VALUES (p_org, p_message, number, p_kind, p_delivery, 'admitted', seq, p_now,
                CASE WHEN p_wake THEN seq ELSE 0 END, projector_version());
            outcome := 'admitted';
            admitted_ms := p_now;
            payload := p_payload;
            RETURN;
        END IF;
        SELECT h.id AS session, h.location_id, i.kind, e.payload, i.admitted_seq, i.admitted_ms INTO first
        FROM session_input i JOIN session_event e ON e.incarnation = i.incarnation AND e.seq = i.admitted_seq
            JOIN session h ON h.incarnation = i.incarnation
        WHERE i.org_id = p_org AND i.id = p_message;
        IF FOUND THEN
            -- The delivery that was admitted: it may have been changed since.
            outcome := CASE WHEN first.session = p_session AND first.kind = p_kind
                AND first.payload::json->>'delivery' = p_delivery
                AND first.payload::json->>'digest' = p_digest THEN 'retry' ELSE 'conflict' END;
            seq := first.admitted_seq;
            location := first.location_id;
            admitted_ms := first.admitted_ms;
            payload := first.payload;
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message) THEN
            outcome := 'conflict';
            RETURN;
        END IF;
        SELECT h.staged_seq, h.ready, h.incarnation, h.pending INTO staged, busy, number, waiting FROM session_head h
        WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
        IF NOT FOUND THEN
            outcome := 'missing';
            RETURN;
        END IF;
        has_room := inbox_has_room(p_org, number, waiting, size);
        IF NOT has_room THEN
            outcome := 'full';
            RETURN;
        END IF;
        IF waiting >= few THEN
            -- What is counted now need not be counted by the next: it takes from the room.
            UPDATE session_head SET inbox_room = 16777216 - (inbox_size(p_org, number)).bytes
            WHERE org_id = p_org AND id = p_session AND waiting < 1000;
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
