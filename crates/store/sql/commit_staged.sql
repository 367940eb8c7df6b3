-- Commits the staged Revert of a session whose head the caller has locked, and cancels the synthetic input that
-- it held: one event for each, with ids of `p_spare`. 0; or how many ids it needs, and nothing is changed, as
-- with `p_ask`.
CREATE OR REPLACE FUNCTION commit_staged(
    p_org uuid, p_session text, p_spare text[], p_stamp bigint, p_now bigint, p_ask boolean)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    held CONSTANT text[] := ARRAY(SELECT held_inputs(p_org, p_session));
    n CONSTANT integer := 1 + cardinality(held);
    staged json;
    kinds text[];
    payloads text[];
    first bigint;
BEGIN
    IF p_ask OR cardinality(p_spare) < n THEN
        RETURN n;
    END IF;
    SELECT s.revert::json INTO staged FROM session s WHERE s.org_id = p_org AND s.id = p_session;
    kinds := 'revert.committed'::text || array_fill('input.cancelled'::text, ARRAY[n - 1]);
    -- json keeps the bytes of what it takes over.
    payloads := json_build_object(
            'message', staged->'message', 'from', staged->'from', 'back', staged->'back')::text
        || ARRAY(SELECT json_build_object('message', id)::text
            FROM unnest(held) WITH ORDINALITY AS h (id, place) ORDER BY place);
    UPDATE session_head h SET next_seq = h.next_seq + n, pending = h.pending - (n - 1),
        last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - n INTO first;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    SELECT p_org, p_session, first + i - 1, p_spare[i], kinds[i], 1, p_now, payloads[i]
    FROM generate_series(1, n) AS i;
    PERFORM project_events(p_org, p_session, first, array_fill(p_now, ARRAY[n]), kinds, payloads);
    RETURN 0;
END $$;
