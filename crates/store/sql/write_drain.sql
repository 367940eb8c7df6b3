-- One write of a drain, based on a head whose claim was `p_claim` and whose next number is `p_first`.
-- With `p_token` it starts the drain: it takes the Location's lock shared, finds the token still its fence
-- and raises the claim; its first event logs the token. 'written'; 'stale' (the head has moved: look again), 'fenced' (the claim has passed
-- on), 'superseded' (a higher token has been at the Location); only the first has changed anything.
--
-- `p_end`: 'keep' the drain, 'close' it, 'park' (close, and let what is pending wait for a new wake), or
-- 'hand-over' (stays open for the next holder). `p_progress` clears the recovery counter.
CREATE OR REPLACE FUNCTION write_drain(
    p_org uuid, p_session text, p_location text, p_token bigint, p_claim bigint, p_first bigint,
    p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_now bigint, p_ids text[],
    p_kinds text[], p_versions integer[], p_payloads text[], p_hashes bytea[], p_bytes bytea[])
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    n CONSTANT integer := cardinality(p_ids);
    starts CONSTANT boolean := p_token IS NOT NULL;
    fence_now bigint;
    left_over integer;
    held bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF starts THEN
        -- Before the look at the fence, in a statement of its own: a fence that is being raised is waited for.
        PERFORM pg_advisory_xact_lock_shared(location_lock(p_org, p_location));
        SELECT fence INTO fence_now FROM location WHERE org_id = p_org AND id = p_location;
        IF fence_now IS DISTINCT FROM p_token THEN
            RETURN 'superseded';
        END IF;
    END IF;
    UPDATE session_head SET next_seq = next_seq + n, pending = pending - p_promoted,
        last_id = greatest(last_id, p_stamp),
        open = (p_end IN ('keep', 'hand-over')),
        handed_over = (p_end = 'hand-over'),
        claim = claim + (CASE WHEN starts THEN 1 ELSE 0 END) + (CASE p_end WHEN 'keep' THEN 0 ELSE 1 END),
        -- With nothing left, the wakes are spent: an input admitted later without one stays put.
        parked_seq = CASE WHEN p_end = 'park' OR (p_end = 'close' AND pending = p_promoted)
            THEN greatest(parked_seq, wake_seq) ELSE parked_seq END,
        recoveries = CASE WHEN p_progress OR p_end IN ('close', 'park') THEN 0
            -- A takeover of work that was left open counts, unless its holder handed it over.
            WHEN starts AND open AND NOT handed_over THEN recoveries + 1
            ELSE recoveries END
    WHERE org_id = p_org AND id = p_session AND location_id = p_location
        AND claim = p_claim AND next_seq = p_first
    RETURNING pending INTO left_over;
    IF NOT FOUND THEN
        SELECT claim INTO held FROM session_head
        WHERE org_id = p_org AND id = p_session AND location_id = p_location;
        RETURN CASE WHEN starts OR held = p_claim THEN 'stale' ELSE 'fenced' END;
    END IF;
    IF cardinality(p_hashes) > 0 THEN
        INSERT INTO request_component (org_id, hash, bytes)
        SELECT p_org, new.hash, new.bytes FROM unnest(p_hashes, p_bytes) AS new (hash, bytes)
        ORDER BY new.hash ON CONFLICT DO NOTHING;
    END IF;
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, claim, payload, token)
    SELECT p_org, p_session, p_first + new.i - 1, new.id, new.kind, new.version, p_now,
        p_claim + (CASE WHEN starts THEN 1 ELSE 0 END), new.payload, CASE new.i WHEN 1 THEN p_token END
    FROM unnest(p_ids, p_kinds, p_versions, p_payloads) WITH ORDINALITY
        AS new (id, kind, version, payload, i);
    PERFORM project_events(p_org, p_session, p_first, array_fill(p_now, ARRAY[n]), p_kinds, p_payloads);
    IF p_end = 'close' AND left_over > 0 THEN
        -- What was only stored does not start another drain. The head is locked: nobody admits meanwhile.
        PERFORM spend_wakes(p_org, p_session);
    END IF;
    RETURN 'written';
END $$;
