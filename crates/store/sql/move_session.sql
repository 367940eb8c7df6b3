-- A drain's last write at its Location, as write_drain's but for this: both Locations' locks, in ascending
-- order, are taken before the head; the session is at `p_to` with it, and the claim passes on. With `p_seed`,
-- `p_to` begins with these files of `p_from`, if nobody has been there yet. 'written', 'stale', 'fenced',
-- 'superseded', or 'nowhere' (there is no `p_to`); only the first has changed anything.
--
-- `p_end`: 'moved' closes the drain; with 'moved-open' work continues at `p_to`.
CREATE OR REPLACE FUNCTION move_session(
    p_org uuid, p_session text, p_from text, p_to text, p_seed text, p_token bigint, p_claim bigint,
    p_first bigint, p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_now bigint,
    p_ids text[], p_kinds text[], p_versions integer[], p_payloads text[], p_after text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := cardinality(p_ids);
    a CONSTANT bigint := location_lock(p_org, p_from);
    b CONSTANT bigint := location_lock(p_org, p_to);
    head record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(least(a, b));
    PERFORM pg_advisory_xact_lock(greatest(a, b));
    PERFORM FROM location l WHERE l.org_id = p_org AND l.id = p_to FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'nowhere';
    END IF;
    SELECT * INTO head FROM advance_head(p_org, p_session, p_from, p_to, p_token, p_claim, p_first, n, p_promoted,
        p_stamp, p_end, p_progress, true, p_after);
    IF head.outcome <> 'written' THEN
        RETURN head.outcome;
    END IF;
    IF n > 0 THEN
        PERFORM append_events(p_org, array_fill(p_session, ARRAY[n]), array_fill(head.number, ARRAY[n]),
            ARRAY(SELECT generate_series(p_first, p_first + n - 1)), array_fill(p_now, ARRAY[n]),
            array_fill(p_claim + (CASE WHEN p_token IS NULL THEN 0 ELSE 1 END), ARRAY[n]), p_ids, p_kinds, p_versions,
            p_payloads, array_fill(NULL::bigint, ARRAY[n]));
    END IF;
    IF p_end = 'moved' AND head.left_over > 0 THEN
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    IF p_seed IS NOT NULL THEN
        PERFORM seed_location(p_org, p_to, p_from, p_seed);
    END IF;
    RETURN 'written';
END $$;
