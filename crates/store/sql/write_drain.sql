-- One write of a drain, with its events: see advance_head(), whose outcome it gives. A start logs its token with
-- its first event.
CREATE OR REPLACE FUNCTION write_drain(
    p_org uuid, p_session text, p_location text, p_token bigint, p_claim bigint, p_first bigint,
    p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_now bigint, p_ids text[],
    p_kinds text[], p_versions integer[], p_payloads text[], p_hashes bytea[], p_bytes bytea[],
    p_after text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    n CONSTANT integer := cardinality(p_ids);
    head record;
BEGIN
    SELECT * INTO head FROM advance_head(p_org, p_session, p_location, NULL, p_token, p_claim, p_first, n, p_promoted,
        p_stamp, p_end, p_progress, true, p_after);
    IF head.outcome <> 'written' THEN
        RETURN head.outcome;
    END IF;
    PERFORM put_components(p_org, p_hashes, p_bytes);
    IF n > 0 THEN
        PERFORM append_events(p_org, array_fill(p_session, ARRAY[n]), array_fill(head.number, ARRAY[n]),
            ARRAY(SELECT generate_series(p_first, p_first + n - 1)), array_fill(p_now, ARRAY[n]),
            array_fill(p_claim + (CASE WHEN p_token IS NULL THEN 0 ELSE 1 END), ARRAY[n]), p_ids, p_kinds, p_versions,
            p_payloads, p_token || array_fill(NULL::bigint, ARRAY[n - 1]));
    END IF;
    IF p_end = 'close' AND head.left_over > 0 THEN
        -- Input that was only stored does not start another drain. The head is locked: nobody admits meanwhile.
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    RETURN 'written';
END $$;
