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
    number bigint;
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
    SELECT t.number, t.first INTO number, first FROM take_numbers(p_org, p_session, n, p_stamp, 1 - n, false) AS t;
    PERFORM append_events(p_org, array_fill(p_session, ARRAY[n]), array_fill(number, ARRAY[n]),
        ARRAY(SELECT generate_series(first, first + n - 1)), array_fill(p_now, ARRAY[n]),
        array_fill(NULL::bigint, ARRAY[n]), p_spare[1:n], kinds, array_fill(1, ARRAY[n]), payloads,
        array_fill(NULL::bigint, ARRAY[n]));
    RETURN 0;
END $$;
