-- A drain's last write at its Location, as write_drain's but for this: both Locations' locks, in ascending
-- order, are taken before the head; the session is at `p_to` with it, and the claim passes on. With `p_seed`,
-- `p_to` begins with these files of `p_from`, if nobody has been there yet. 'written', 'stale', 'fenced',
-- 'superseded', or 'nowhere' (there is no `p_to`); only the first has changed anything.
--
-- `p_end`: 'moved' closes the drain; with 'moved-open' work continues at `p_to`.
CREATE OR REPLACE FUNCTION move_session(
    p_org uuid, p_session text, p_from text, p_to text, p_seed text, p_token bigint, p_claim bigint,
    p_first bigint, p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_now bigint,
    p_ids text[], p_kinds text[], p_versions integer[], p_payloads text[])
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := cardinality(p_ids);
    starts CONSTANT boolean := p_token IS NOT NULL;
    a CONSTANT bigint := location_lock(p_org, p_from);
    b CONSTANT bigint := location_lock(p_org, p_to);
    fence_now bigint;
    left_over integer;
    held bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM pg_advisory_xact_lock(least(a, b));
    PERFORM pg_advisory_xact_lock(greatest(a, b));
    IF starts THEN
        SELECT fence INTO fence_now FROM location WHERE org_id = p_org AND id = p_from;
        IF fence_now IS DISTINCT FROM p_token THEN
            RETURN 'superseded';
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM location WHERE org_id = p_org AND id = p_to) THEN
        RETURN 'nowhere';
    END IF;
    UPDATE session_head SET next_seq = next_seq + n, pending = pending - p_promoted,
        last_id = greatest(last_id, p_stamp),
        location_id = p_to,
        open = (p_end = 'moved-open'),
        handed_over = (p_end = 'moved-open'),
        claim = claim + (CASE WHEN starts THEN 2 ELSE 1 END),
        parked_seq = CASE WHEN p_end = 'moved' AND pending = p_promoted
            THEN greatest(parked_seq, wake_seq) ELSE parked_seq END,
        recoveries = CASE WHEN p_progress OR p_end <> 'moved-open' THEN 0
            WHEN starts AND open AND NOT handed_over THEN recoveries + 1
            ELSE recoveries END
    WHERE org_id = p_org AND id = p_session AND location_id = p_from
        AND claim = p_claim AND next_seq = p_first
    RETURNING pending INTO left_over;
    IF NOT FOUND THEN
        SELECT claim INTO held FROM session_head
        WHERE org_id = p_org AND id = p_session AND location_id = p_from;
        RETURN CASE WHEN starts OR held = p_claim THEN 'stale' ELSE 'fenced' END;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload)
    SELECT p_org, p_session, p_first + new.i - 1, new.id, new.kind, new.version, p_now,
        p_claim + (CASE WHEN starts THEN 1 ELSE 0 END), new.payload
    FROM unnest(p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
        AS new (id, kind, version, payload, i);
    PERFORM project_events(p_org, p_session, p_first, array_fill(p_now, ARRAY[n]), p_kinds, p_payloads);
    IF p_end = 'moved' AND left_over > 0 THEN
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    IF p_seed IS NOT NULL THEN
        PERFORM seed_location(p_org, p_to, p_from, p_seed);
    END IF;
    RETURN 'written';
END $$;
