-- Deletes a session and its descendants, with logs and projections. How many; 0 without it; NULL when a
-- descendant was made meanwhile: nothing is deleted, the caller asks again.
--
-- Locks the heads, and then the organisation's sums of usage. What it has locked is all that it counts and deletes: without
-- the session it takes no lock of sums, and a session that another makes under the id meanwhile stays.
CREATE OR REPLACE FUNCTION delete_session(p_org uuid, p_session text)
RETURNS integer LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    ids text[] := ARRAY(SELECT t FROM session_tree(p_org, p_session) AS t);
    numbers bigint[];
    log record;
    new usage_fact[];
    added usage_fact[] := '{}';
    gone usage_fact[] := '{}';
BEGIN
    SELECT array_agg(l.id), array_agg(l.incarnation) INTO ids, numbers
    FROM (SELECT h.id, h.incarnation FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids)
        ORDER BY h.id FOR UPDATE) AS l;
    IF p_session = ANY (ids) IS NOT TRUE THEN
        RETURN 0;
    END IF;
    -- Who makes a child has its parent's lock. Now we have them all.
    IF EXISTS (SELECT FROM session_tree(p_org, p_session) AS t WHERE t <> ALL (ids)) THEN
        RETURN NULL;
    END IF;
    -- What it used stays in the sums: what is not counted yet is added, and all is kept once more for who counts anew. Each
    -- event is read once.
    PERFORM pg_advisory_xact_lock(hashtextextended('usage ' || p_org, 0));
    FOR log IN SELECT h.id, h.incarnation, coalesce(t.first, 0) AS first, coalesce(t.last, 0) AS upto,
            h.next_seq - 1 AS last
        FROM session_head h LEFT JOIN usage_through t ON t.org_id = p_org AND t.incarnation = h.incarnation
        WHERE h.org_id = p_org AND h.id = ANY (ids) LOOP
        BEGIN
            new := ARRAY(SELECT f FROM usage_facts(p_org, log.incarnation, log.upto, log.last) AS f);
            gone := gone || new || ARRAY(SELECT f FROM usage_facts(p_org, log.incarnation, log.first, log.upto) AS f);
            added := added || new;
        EXCEPTION WHEN data_exception THEN
            -- A log that cannot be counted can be deleted all the same.
            RAISE WARNING 'the usage of session % cannot be counted: %', log.id, SQLERRM;
        END;
    END LOOP;
    PERFORM add_usage_facts(p_org, added);
    PERFORM add_usage(p_org, 'usage_gone', 86400000, ARRAY['person', 'project', 'agent', 'provider', 'model'], gone);
    DELETE FROM usage_through t WHERE t.org_id = p_org AND t.incarnation = ANY (numbers);
    DELETE FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids) AND h.incarnation = ANY (numbers);
    INSERT INTO session_change (org_id, incarnation, session_id, first, last, gone)
    SELECT p_org, t.number, t.id, 0, 0, true FROM unnest(ids, numbers) AS t (id, number);
    PERFORM drop_projections(p_org, t.id, t.number) FROM unnest(ids, numbers) AS t (id, number);
    DELETE FROM session_event e WHERE e.org_id = p_org AND e.incarnation = ANY (numbers);
    RETURN cardinality(ids);
END $$;
