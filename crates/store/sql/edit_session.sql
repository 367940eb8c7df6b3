-- Logs what a client says of a session: its title, that it is archived, its metadata. All of it or nothing; wakes
-- nobody. The number of the last event; NULL without the session. Locks the head.
CREATE OR REPLACE FUNCTION edit_session(
    p_org uuid, p_session text, p_stamp bigint, p_now bigint, p_ids text[], p_kinds text[], p_payloads text[])
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := cardinality(p_ids);
    head record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT * INTO head FROM take_numbers(p_org, p_session, n, p_stamp, 0, false);
    IF head.number IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM append_events(p_org, array_fill(p_session, ARRAY[n]), array_fill(head.number, ARRAY[n]),
        ARRAY(SELECT generate_series(head.first, head.first + n - 1)), array_fill(p_now, ARRAY[n]),
        array_fill(NULL::bigint, ARRAY[n]), p_ids, p_kinds, array_fill(1, ARRAY[n]), p_payloads,
        array_fill(NULL::bigint, ARRAY[n]));
    RETURN head.first + n - 1;
END $$;
