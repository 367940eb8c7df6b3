-- Deletes a session and its descendants, with logs and projections. How many; 0 without it; NULL when a
-- descendant was made meanwhile: nothing is deleted, the caller asks again.
--
-- Locks the heads, and then the organisation's sums of usage.
CREATE OR REPLACE FUNCTION delete_session(p_org uuid, p_session text)
RETURNS integer LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    ids text[];
    numbers bigint[];
    deleted integer;
    counted record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    ids := ARRAY(SELECT t FROM session_tree(p_org, p_session) AS t);
    PERFORM FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids) ORDER BY h.id FOR UPDATE;
    -- Who makes a child has its parent's lock. Now we have them all.
    IF EXISTS (SELECT FROM session_tree(p_org, p_session) AS t WHERE t <> ALL (ids)) THEN
        RETURN NULL;
    END IF;
    -- What it used stays in the sums: all of it is counted first, and kept once more for who counts anew.
    WHILE roll_up_usage(p_org, ids) LOOP
    END LOOP;
    FOR counted IN SELECT t.* FROM session_head h JOIN usage_through t ON t.org_id = p_org
        AND t.incarnation = h.incarnation WHERE h.org_id = p_org AND h.id = ANY (ids) LOOP
        PERFORM add_usage(p_org, 'usage_gone', 86400000, ARRAY['person', 'project', 'agent', 'provider', 'model'],
            ARRAY(SELECT f FROM usage_facts(p_org, counted.incarnation, counted.first, counted.last) AS f));
        DELETE FROM usage_through t WHERE t.org_id = p_org AND t.incarnation = counted.incarnation;
    END LOOP;
    WITH gone AS (DELETE FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids) 
        RETURNING h.id, h.incarnation)
    SELECT array_agg(g.id), array_agg(g.incarnation), count(*) INTO ids, numbers, deleted FROM gone g;
    IF deleted > 0 THEN
        INSERT INTO session_change (org_id, incarnation, session_id, first, last, gone)
        SELECT p_org, t.number, t.id, 0, 0, true FROM unnest(ids, numbers) AS t (id, number);
        PERFORM drop_projections(p_org, t.id, t.number) FROM unnest(ids, numbers) AS t (id, number);
        DELETE FROM session_event e WHERE e.org_id = p_org AND e.incarnation = ANY (numbers);
    END IF;
    RETURN deleted;
END $$;
