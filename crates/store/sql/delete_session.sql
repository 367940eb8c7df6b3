-- Deletes a session and its descendants: from its commit on nobody finds them. How many; 0 without it; NULL when a
-- descendant was made meanwhile: nothing is deleted, the caller asks again.
--
-- What they used is counted, and their rows are removed, by clear_gone_session, page by page. Few rows are removed at once.
--
-- Locks the heads, and waits for nothing else. What it has locked is all that it deletes: a session that another makes under
-- the id meanwhile stays.
CREATE OR REPLACE FUNCTION delete_session(p_org uuid, p_session text)
RETURNS integer LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    -- So few events are removed at once, unless that takes more than so many pages: a session needs two.
    few CONSTANT bigint := 1000;
    pages integer := 24;
    ids text[] := ARRAY(SELECT t FROM session_tree(p_org, p_session) AS t);
    numbers bigint[];
    lasts bigint[];
    number bigint;
BEGIN
    SELECT array_agg(l.id), array_agg(l.incarnation), array_agg(l.next_seq - 1) INTO ids, numbers, lasts
    FROM (SELECT h.id, h.incarnation, h.next_seq FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids)
        ORDER BY h.id FOR UPDATE) AS l;
    IF p_session = ANY (ids) IS NOT TRUE THEN
        RETURN 0;
    END IF;
    -- Who makes a child has its parent's lock. Now we have them all.
    IF EXISTS (SELECT FROM session_tree(p_org, p_session) AS t WHERE t <> ALL (ids)) THEN
        RETURN NULL;
    END IF;
    -- Every read begins with one of these rows, or with an ask that waits.
    DELETE FROM session_head h WHERE h.org_id = p_org AND h.id = ANY (ids) AND h.incarnation = ANY (numbers);
    DELETE FROM session s WHERE s.org_id = p_org AND s.id = ANY (ids) AND s.incarnation = ANY (numbers);
    DELETE FROM ask a WHERE a.org_id = p_org AND a.incarnation = ANY (numbers) AND a.status = 'pending';
    INSERT INTO session_change (org_id, incarnation, session_id, first, last, gone)
    SELECT p_org, t.number, t.id, 0, 0, true FROM unnest(ids, numbers) AS t (id, number);
    INSERT INTO gone_session (org_id, incarnation, session_id, events, gone_ms)
    SELECT p_org, t.number, t.id, t.last, clock_ms() FROM unnest(ids, numbers, lasts) AS t (id, number, last);
    -- Who counts meanwhile is not waited for.
    IF (SELECT sum(l) FROM unnest(lasts) AS l) <= few
        AND pg_try_advisory_xact_lock(hashtextextended('usage ' || p_org, 0)) THEN
        FOREACH number IN ARRAY numbers LOOP
            LOOP
                EXIT WHEN pages = 0;
                pages := pages - 1;
                EXIT WHEN NOT clear_gone_session(p_org, few, number);
            END LOOP;
        END LOOP;
    END IF;
    RETURN cardinality(ids);
END $$;
