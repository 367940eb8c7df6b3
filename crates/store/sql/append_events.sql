-- Appends events to logs and folds them into the projections: those of one session after those of the other, each
-- with the number that its writer has taken from the head. The one place where the log is written, but
-- for admissions.
CREATE OR REPLACE FUNCTION append_events(
    p_org uuid, p_sessions text[], p_numbers bigint[], p_seqs bigint[], p_times bigint[], p_claims bigint[],
    p_ids text[], p_kinds text[], p_versions integer[], p_payloads text[], p_tokens bigint[])
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, claim, token, payload)
    SELECT p_org, e.number, e.seq, e.id, e.kind, e.version, e.time, e.claim, e.token, e.payload
    FROM unnest(p_numbers, p_seqs, p_ids, p_kinds, p_versions, p_times, p_claims, p_tokens, p_payloads)
        AS e (number, seq, id, kind, version, time, claim, token, payload);
    INSERT INTO session_change (org_id, incarnation, session_id, first, last)
    SELECT p_org, e.number, e.session, min(e.seq), max(e.seq)
    FROM unnest(p_numbers, p_sessions, p_seqs) AS e (number, session, seq) GROUP BY e.number, e.session;
    PERFORM project_events(p_org, p_sessions, p_numbers, p_seqs, p_times, p_kinds, p_payloads);
END $$;
