-- A session and all its descendants.
CREATE OR REPLACE FUNCTION session_tree(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    WITH RECURSIVE tree AS (
        SELECT p_session COLLATE "C" AS id
        UNION ALL
        SELECT s.id FROM session s JOIN tree ON s.org_id = p_org AND s.parent_id = tree.id
    )
    SELECT id FROM tree
$$;
