-- Removes a page of what a deleted session of an organisation has left; `p_number` says of which. First what it used is
-- counted, `p_most` events a page; then its rows are removed, `p_most` a page or some 8 MiB. True: more may be left, call it
-- again. Where a page ends is kept with its work, so a caller may end anywhere.
--
-- Locks the row of the deleted session, and passes over one that another has; while it counts also the organisation's sums.
-- Nobody else wants the rows that it removes.
CREATE OR REPLACE FUNCTION clear_gone_session(p_org uuid, p_most bigint, p_number bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp
-- A page may be most of a table, and of the next page nothing of it may be read again.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    gone record;
    first_seq bigint;
    last_seq bigint;
    upto bigint;
    facts usage_fact[] := '{}';
    place record;
    rows tid[];
    bytes bigint;
    rest bigint := p_most;
    rest_bytes bigint := 8 * 1024 * 1024;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT g.incarnation, g.session_id, g.events, g.counted INTO gone FROM gone_session g
    WHERE g.org_id = p_org AND (p_number IS NULL OR g.incarnation = p_number)
    ORDER BY g.incarnation LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT gone.counted THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('usage ' || p_org, 0));
        -- A recount reads from `first` to `last`, and adds the sums of what is gone: so `first` is how far that is counted.
        INSERT INTO usage_through (incarnation, org_id, first, last) VALUES (gone.incarnation, p_org, 0, 0)
        ON CONFLICT (incarnation) DO NOTHING;
        SELECT t.first, t.last INTO first_seq, last_seq FROM usage_through t
        WHERE t.org_id = p_org AND t.incarnation = gone.incarnation;
        upto := least(first_seq + p_most, CASE WHEN first_seq < last_seq THEN last_seq ELSE gone.events END);
        IF upto > first_seq THEN
            BEGIN
                facts := ARRAY(SELECT f FROM usage_facts(p_org, gone.incarnation, first_seq, upto) AS f);
            EXCEPTION WHEN data_exception THEN
                -- A log that cannot be counted can be deleted all the same.
                RAISE WARNING 'the usage of session % cannot be counted: %', gone.session_id, SQLERRM;
            END;
            IF first_seq = last_seq THEN
                PERFORM add_usage_facts(p_org, facts);
            END IF;
            -- What it used stays in the sums, and is kept once more for who counts anew.
            PERFORM add_usage(p_org, 'usage_gone', 86400000,
                ARRAY['person', 'project', 'agent', 'provider', 'model'], facts);
            UPDATE usage_through t SET first = upto, last = greatest(t.last, upto)
            WHERE t.org_id = p_org AND t.incarnation = gone.incarnation;
        END IF;
        IF greatest(upto, last_seq) >= gone.events AND upto >= last_seq THEN
            DELETE FROM usage_through t WHERE t.org_id = p_org AND t.incarnation = gone.incarnation;
            UPDATE gone_session g SET counted = true WHERE g.org_id = p_org AND g.incarnation = gone.incarnation;
        END IF;
        RETURN true;
    END IF;
    -- Ids that another session may want again, as when it is imported once more, go first; the log goes last.
    FOR place IN SELECT * FROM (VALUES
        ('session_input', NULL), ('message', NULL), ('mid_conversation_system_message', 'rendered'),
        ('provider_turn', NULL), ('provider_attempt', NULL), ('tool_result', 'bounded_text'), ('ask', NULL),
        ('part', 'text'), ('context_epoch', 'baseline'), ('session_component', NULL), ('left_location', NULL),
        ('session_entry', 'value'), ('workspace_change', 'files'), ('session_event', 'payload')) AS t (name, large) LOOP
        -- The size of a large value is known without reading it.
        EXECUTE format('SELECT array_agg(r.at), coalesce(sum(r.size), 0) FROM (
                SELECT w.at, w.size, sum(w.size) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                FROM (SELECT t.ctid AS at, coalesce(%2$s, 0) AS size FROM %1$I t
                    WHERE t.org_id = $1 AND t.incarnation = $2 LIMIT $3) AS w) AS r
            WHERE coalesce(r.before, 0) < $4',
            place.name, CASE WHEN place.large IS NULL THEN '0' ELSE format('pg_column_size(t.%I)', place.large) END)
        INTO rows, bytes USING p_org, gone.incarnation, rest, rest_bytes;
        EXECUTE format('DELETE FROM %I WHERE org_id = $1 AND ctid = ANY ($2)', place.name) USING p_org, rows;
        rest := rest - coalesce(cardinality(rows), 0);
        rest_bytes := rest_bytes - bytes;
        IF rest <= 0 OR rest_bytes <= 0 THEN
            RETURN true;
        END IF;
    END LOOP;
    DELETE FROM gone_session g WHERE g.org_id = p_org AND g.incarnation = gone.incarnation;
    RETURN p_number IS NULL AND EXISTS (SELECT FROM gone_session g WHERE g.org_id = p_org);
END $$;
