-- Moves the head of a session on by one write of a drain, which is based on a head whose claim was `p_claim` and whose
-- next number is `p_first`, after the event with the id `p_after`: the same numbers may be another log's, of a database that came
-- back without some commits (docs/decisions/0092). The build before gives no `p_after`. With `p_token` the write starts the drain: it takes the Location's lock shared, finds the
-- token still its fence and raises the claim. With `p_to` the session is at another Location afterwards; the caller
-- has both Locations' locks. Without `p_wait` nothing is waited for: what is locked counts as 'stale'.
--
-- 'written'; 'stale' (the head has moved: look again), 'fenced' (the claim has passed on), 'superseded' (a higher
-- token has been at the Location); only the first has changed anything. `number` is the session's incarnation,
-- `left_over` counts what still waits in its inbox.
--
-- `p_end`: 'keep' the drain, 'close' it, 'park' (close, and let what is pending wait for a new wake), 'hand-over'
-- (stays open for the next holder), 'wait' (stays open and sleeps until somebody answers); at another Location 'moved' closes it, and with 'moved-open' work continues there.
-- `p_progress` clears the recovery counter.
CREATE OR REPLACE FUNCTION advance_head(
    p_org uuid, p_session text, p_location text, p_to text, p_token bigint, p_claim bigint, p_first bigint,
    p_count integer, p_promoted integer, p_stamp bigint, p_end text, p_progress boolean, p_wait boolean,
    p_after text DEFAULT NULL,
    OUT outcome text, OUT number bigint, OUT left_over integer)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    starts CONSTANT boolean := p_token IS NOT NULL;
    ends CONSTANT boolean := p_end IN ('close', 'park', 'moved');
    held bigint;
BEGIN
    IF starts THEN
        -- Before the look at the fence, in a statement of its own: a fence that is being raised is waited for.
        IF p_wait THEN
            PERFORM pg_advisory_xact_lock_shared(location_lock(p_org, p_location));
        ELSIF NOT pg_try_advisory_xact_lock_shared(location_lock(p_org, p_location)) THEN
            outcome := 'stale';
            RETURN;
        END IF;
        IF NOT EXISTS (SELECT FROM location l
            WHERE l.org_id = p_org AND l.id = p_location AND l.fence = p_token) THEN
            outcome := 'superseded';
            RETURN;
        END IF;
    END IF;
    UPDATE session_head h SET next_seq = h.next_seq + p_count, pending = h.pending - p_promoted,
        last_id = greatest(h.last_id, p_stamp),
        location_id = coalesce(p_to, h.location_id),
        open = NOT ends,
        handed_over = (p_end IN ('hand-over', 'moved-open', 'wait')),
        asleep = (p_end = 'wait'),
        claim = h.claim + (CASE WHEN starts THEN 1 ELSE 0 END) + (CASE p_end WHEN 'keep' THEN 0 ELSE 1 END),
        -- With nothing left, the wakes are spent: an input admitted later without one stays put.
        parked_seq = CASE WHEN p_end = 'park' OR (ends AND h.pending = p_promoted)
            THEN greatest(h.parked_seq, h.wake_seq) ELSE h.parked_seq END,
        recoveries = CASE WHEN p_progress OR ends THEN 0
            -- A takeover of work that was left open counts, unless its holder handed it over.
            WHEN starts AND h.open AND NOT h.handed_over THEN h.recoveries + 1
            ELSE h.recoveries END
    WHERE h.org_id = p_org AND h.id = p_session AND h.location_id = p_location
        AND h.claim = p_claim AND h.next_seq = p_first
        AND (p_after IS NULL OR p_after = (SELECT e.id FROM session_event e WHERE e.org_id = p_org
            AND e.incarnation = h.incarnation AND e.seq = p_first - 1))
        AND (p_wait OR (SELECT true FROM session_head l WHERE l.org_id = p_org AND l.id = p_session
            FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING h.incarnation, h.pending INTO number, left_over;
    IF FOUND THEN
        outcome := 'written';
    ELSIF starts OR NOT p_wait THEN
        outcome := 'stale';
    ELSE
        SELECT h.claim INTO held FROM session_head h
        WHERE h.org_id = p_org AND h.id = p_session AND h.location_id = p_location;
        outcome := CASE WHEN held = p_claim THEN 'stale' ELSE 'fenced' END;
    END IF;
END $$;
