-- One event of a gateway's: its number, NULL without the session. See take_numbers().
CREATE OR REPLACE FUNCTION log_event(p_org uuid, p_session text, p_kind text, p_event text, p_stamp bigint, p_now bigint,
    p_payload text, p_admitted integer DEFAULT 0, p_wakes boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
BEGIN
    SELECT * INTO head FROM take_numbers(p_org, p_session, 1, p_stamp, p_admitted, p_wakes);
    IF head.number IS NOT NULL THEN
        PERFORM append_events(p_org, ARRAY[p_session], ARRAY[head.number], ARRAY[head.first], ARRAY[p_now],
            ARRAY[NULL::bigint], ARRAY[p_event], ARRAY[p_kind], ARRAY[1], ARRAY[p_payload], ARRAY[NULL::bigint]);
    END IF;
    RETURN head.first;
END $$;
