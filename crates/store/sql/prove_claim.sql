-- Locks the head and proves the claim, for a write that must decide first. No row: fenced. `is_known`: the log still has the
-- event `p_known` with the id `p_known_id`; without it, the database came back without some commits (docs/decisions/0092).
-- The build before gives neither.
CREATE OR REPLACE FUNCTION prove_claim(
    p_org uuid, p_session text, p_claim bigint, p_known bigint DEFAULT 0, p_known_id text DEFAULT NULL,
    OUT next_seq bigint, OUT last_id bigint, OUT interrupt_seq bigint, OUT wake_seq bigint,
    OUT parked_seq bigint, OUT pending integer, OUT is_known boolean)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT h.next_seq, h.last_id, h.interrupt_seq, h.wake_seq, h.parked_seq, h.pending,
        p_known < h.next_seq AND (p_known_id IS NULL OR coalesce(p_known_id = (SELECT k.id FROM session_event k
            WHERE k.org_id = p_org AND k.incarnation = h.incarnation AND k.seq = p_known), false))
    FROM session_head h WHERE h.org_id = p_org AND h.id = p_session AND h.claim = p_claim FOR UPDATE;
END $$;
