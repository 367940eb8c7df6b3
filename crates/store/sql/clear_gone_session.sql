-- Removes a page of what a deleted session of an organisation has left; `p_number` says of which. First what it used is
-- counted, page by page; then its rows are removed, `p_most` a page or some 8 MiB. True: more may be left, call it again.
-- Where a page ends is kept with its work, so a caller may end anywhere.
--
-- Locks the row of the deleted session, and passes over one that another has. Nobody else wants the rows that it removes.
CREATE OR REPLACE FUNCTION clear_gone_session(p_org uuid, p_most bigint, p_number bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SET search_path = public, pg_temp
-- A page may be most of a table, and of the next page nothing of it may be read again.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    gone record;
    place record;
    few text;
    rows tid[];
    bytes bigint;
    rest bigint := p_most;
    rest_bytes bigint := 8 * 1024 * 1024;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT g.incarnation, g.counted INTO gone FROM gone_session g
    WHERE g.org_id = p_org AND (p_number IS NULL OR g.incarnation = p_number)
    ORDER BY g.incarnation LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT gone.counted THEN
        PERFORM count_gone_session(p_org, gone.incarnation);
        RETURN true;
    END IF;
    -- Ids that another session may want again, as when it is imported once more, go first; the log goes last.
    FOR place IN SELECT * FROM (VALUES
        ('session_input', NULL), ('message', NULL), ('mid_conversation_system_message', 'rendered'),
        ('provider_turn', NULL), ('provider_attempt', NULL), ('tool_result', 'bounded_text'), ('ask', NULL),
        ('part', 'text'), ('context_epoch', 'baseline'), ('session_component', NULL), ('left_location', NULL),
        ('session_entry', 'value'), ('workspace_change', 'files'), ('session_event', 'payload')) AS t (name, large) LOOP
        -- The size of a large value is known without reading it.
        few := format('SELECT t.ctid AS at, %2$s AS size FROM %1$I t WHERE t.org_id = $1 AND t.incarnation = $2 LIMIT $3',
            place.name, CASE WHEN place.large IS NULL THEN '0' ELSE format('coalesce(pg_column_size(t.%I), 0)', place.large) END);
        EXECUTE format('SELECT array_agg(w.at), sum(w.size) FROM (%s) AS w', few)
        INTO rows, bytes USING p_org, gone.incarnation, rest;
        IF bytes > rest_bytes THEN
            EXECUTE format('SELECT array_agg(r.at), sum(r.size) FROM (
                    SELECT w.*, sum(w.size) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                    FROM (%s) AS w) AS r
                WHERE coalesce(r.before, 0) < $4', few)
            INTO rows, bytes USING p_org, gone.incarnation, rest, rest_bytes;
        END IF;
        CONTINUE WHEN rows IS NULL;
        EXECUTE format('DELETE FROM %I WHERE org_id = $1 AND ctid = ANY ($2)', place.name) USING p_org, rows;
        rest := rest - cardinality(rows);
        rest_bytes := rest_bytes - bytes;
        IF rest <= 0 OR rest_bytes <= 0 THEN
            RETURN true;
        END IF;
    END LOOP;
    DELETE FROM gone_session g WHERE g.org_id = p_org AND g.incarnation = gone.incarnation;
    RETURN p_number IS NULL AND EXISTS (SELECT FROM gone_session g WHERE g.org_id = p_org);
END $$;
