-- Locks the head and proves the claim, for a write that must decide first. No row: fenced.
CREATE OR REPLACE FUNCTION prove_claim(
    p_org uuid, p_session text, p_claim bigint,
    OUT next_seq bigint, OUT last_id bigint, OUT interrupt_seq bigint, OUT wake_seq bigint,
    OUT parked_seq bigint, OUT pending integer)
RETURNS SETOF record LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT h.next_seq, h.last_id, h.interrupt_seq, h.wake_seq, h.parked_seq, h.pending
    FROM session_head h WHERE h.org_id = p_org AND h.id = p_session AND h.claim = p_claim FOR UPDATE;
END $$;
