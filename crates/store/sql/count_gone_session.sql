-- Counts what a deleted session used, at most 20,000 events, and says in its row when all is counted. It stays in the sums,
-- and is kept once more in usage_gone for who counts anew.
--
-- The caller has the row of the deleted session. Locks the organisation's sums.
CREATE OR REPLACE FUNCTION count_gone_session(p_org uuid, p_number bigint)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp
-- The caller's plans are for rows that go.
SET enable_seqscan = on SET enable_bitmapscan = on AS $$
DECLARE
    most CONSTANT bigint := 20000;
    gone record;
    first_seq bigint;
    last_seq bigint;
    upto bigint;
    facts usage_fact[] := '{}';
BEGIN
    SELECT g.session_id, g.events INTO gone FROM gone_session g WHERE g.org_id = p_org AND g.incarnation = p_number;
    PERFORM pg_advisory_xact_lock(hashtextextended('usage ' || p_org, 0));
    -- A recount reads from `first` to `last`, and adds the sums of what is gone: so `first` is how far that is counted.
    INSERT INTO usage_through (incarnation, org_id, first, last) VALUES (p_number, p_org, 0, 0)
    ON CONFLICT (incarnation) DO NOTHING;
    SELECT t.first, t.last INTO first_seq, last_seq FROM usage_through t
    WHERE t.org_id = p_org AND t.incarnation = p_number;
    upto := least(first_seq + most, CASE WHEN first_seq < last_seq THEN last_seq ELSE gone.events END);
    IF upto > first_seq THEN
        BEGIN
            facts := ARRAY(SELECT f FROM usage_facts(p_org, p_number, first_seq, upto) AS f);
        EXCEPTION WHEN data_exception THEN
            -- A log that cannot be counted can be deleted all the same.
            RAISE WARNING 'the usage of session % cannot be counted: %', gone.session_id, SQLERRM;
        END;
        IF first_seq = last_seq THEN
            PERFORM add_usage_facts(p_org, facts);
        END IF;
        PERFORM add_usage(p_org, 'usage_gone', 86400000,
            ARRAY['person', 'project', 'agent', 'provider', 'model'], facts);
        UPDATE usage_through t SET first = upto, last = greatest(t.last, upto)
        WHERE t.org_id = p_org AND t.incarnation = p_number;
    END IF;
    IF greatest(upto, last_seq) >= gone.events AND upto >= last_seq THEN
        DELETE FROM usage_through t WHERE t.org_id = p_org AND t.incarnation = p_number;
        UPDATE gone_session g SET counted = true WHERE g.org_id = p_org AND g.incarnation = p_number;
    END IF;
END $$;
