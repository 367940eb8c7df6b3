-- Deletes those components that no session and no list names, of the `p_limit` after `p_after`. `last` is the last that was
-- looked at, NULL behind the last of all.
--
-- Locks what it is to delete, skips what others have locked, and looks again. Who begins to name a component locks it
-- through a foreign key. So either this finds its name, or that fails, with all that its writer wrote.
CREATE OR REPLACE FUNCTION collect_components(
    p_org uuid, p_after bytea, p_limit integer, OUT last bytea, OUT looked integer, OUT deleted integer)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    page CONSTANT bytea[] := ARRAY(SELECT c.hash FROM request_component c
        WHERE c.org_id = p_org AND c.hash > p_after ORDER BY c.hash LIMIT p_limit);
    unnamed bytea[];
BEGIN
    looked := cardinality(page);
    last := page[looked];
    unnamed := ARRAY(SELECT c.hash FROM request_component c
        WHERE c.org_id = p_org AND c.hash = ANY (page)
            AND NOT EXISTS (SELECT FROM session_component s WHERE s.org_id = p_org AND s.hash = c.hash)
            AND NOT EXISTS (SELECT FROM component_member m WHERE m.org_id = p_org AND m.member = c.hash)
        ORDER BY c.hash FOR UPDATE OF c SKIP LOCKED);
    -- In a statement of its own, which sees every name that was committed before the locks.
    DELETE FROM request_component c
    WHERE c.org_id = p_org AND c.hash = ANY (unnamed)
        AND NOT EXISTS (SELECT FROM session_component s WHERE s.org_id = p_org AND s.hash = c.hash)
        AND NOT EXISTS (SELECT FROM component_member m WHERE m.org_id = p_org AND m.member = c.hash);
    GET DIAGNOSTICS deleted = ROW_COUNT;
END $$;
