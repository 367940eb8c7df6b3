-- admit_prompt() for several: the places of those that were admitted, with their numbers and Locations. Left out is whoever
-- must be looked at alone, such as a prompt whose inbox may be full.
CREATE OR REPLACE FUNCTION admit_prompts(
    p_org uuid, p_sessions text[], p_messages text[], p_kinds text[], p_deliveries text[], p_wakes boolean[],
    p_events text[], p_stamps bigint[], p_times bigint[], p_payloads text[])
RETURNS TABLE (place integer, seq bigint, location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    projector CONSTANT smallint := projector_version();
    places integer[];
    numbers bigint[];
    seqs bigint[];
    at_number bigint;
    locations text[];
    at_seq bigint;
    at_location text;
BEGIN
    FOR i IN 1 .. cardinality(p_sessions) LOOP
        UPDATE session_head h SET next_seq = h.next_seq + 1, pending = h.pending + 1,
            wake_seq = CASE WHEN p_wakes[i] THEN h.next_seq ELSE h.wake_seq END,
            last_id = greatest(h.last_id, p_stamps[i]),
            inbox_room = greatest(0, h.inbox_room - octet_length(p_payloads[i]))
        WHERE h.org_id = p_org AND h.id = p_sessions[i] AND h.staged_seq = 0
            AND (h.pending < 5 OR h.pending < 1000 AND h.inbox_room >= octet_length(p_payloads[i]))
            AND (SELECT true FROM session_head l WHERE l.org_id = p_org AND l.id = p_sessions[i]
                FOR NO KEY UPDATE SKIP LOCKED)
            AND NOT EXISTS (SELECT FROM session_input n WHERE n.org_id = p_org AND n.id = p_messages[i])
            AND NOT EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_messages[i])
        RETURNING h.incarnation, h.next_seq - 1, h.location_id INTO at_number, at_seq, at_location;
        IF FOUND THEN
            places := places || i;
            numbers := numbers || at_number;
            seqs := seqs || at_seq;
            locations := locations || at_location;
        END IF;
    END LOOP;
    INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
    SELECT p_org, t.number, t.n, p_events[t.i], 'prompt.admitted', 1, p_times[t.i], p_payloads[t.i]
    FROM unnest(places, numbers, seqs) AS t (i, number, n);
    INSERT INTO session_change (org_id, incarnation, session_id, first, last)
    SELECT p_org, t.number, p_sessions[t.i], min(t.n), max(t.n)
    FROM unnest(places, numbers, seqs) AS t (i, number, n) GROUP BY t.number, p_sessions[t.i];
    INSERT INTO session_input (org_id, id, incarnation, kind, delivery, status, admitted_seq, admitted_ms, wake_seq,
        projector_version)
    SELECT p_org, p_messages[t.i], t.number, p_kinds[t.i], p_deliveries[t.i], 'admitted', t.n, p_times[t.i],
        CASE WHEN p_wakes[t.i] THEN t.n ELSE 0 END, projector
    FROM unnest(places, numbers, seqs) AS t (i, number, n);
    RETURN QUERY SELECT * FROM unnest(places, seqs, locations);
END $$;
