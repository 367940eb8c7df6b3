-- Of blobs that are there, notes those that no row names and forgets those that one does. Those that none has named
-- for `p_retention` are returned.
CREATE OR REPLACE FUNCTION note_unnamed_blobs(p_org uuid, p_kind text, p_names text[], p_retention bigint)
RETURNS SETOF text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    now_ms bigint := clock_ms();
    named text[];
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF p_kind = 'tool-output' THEN
        named := ARRAY(SELECT n FROM unnest(p_names) AS n WHERE EXISTS (
            SELECT FROM tool_result r WHERE r.org_id = p_org AND r.managed_path = '/tool-output/' || n));
    ELSIF p_kind IN ('repository', 'repository-index') THEN
        -- A repository's id, and the pack's own of 40 digits.
        named := ARRAY(SELECT n FROM unnest(p_names) AS n WHERE EXISTS (
            SELECT FROM repository_pack r WHERE r.org_id = p_org AND r.repository_id = left(n, -41)
                AND r.pack = right(n, 40)));
    ELSIF p_kind = 'out' THEN
        named := ARRAY(SELECT n FROM unnest(p_names) AS n WHERE EXISTS (
            SELECT FROM session_out o WHERE o.org_id = p_org AND o.id = split_part(n, '-', 1)));
    ELSIF p_kind = 'upload' THEN
        named := ARRAY(SELECT n FROM unnest(p_names) AS n WHERE EXISTS (
            SELECT FROM upload u WHERE u.org_id = p_org AND u.id = n));
    ELSE
        named := ARRAY(SELECT n FROM unnest(p_names) AS n WHERE EXISTS (
            SELECT FROM workspace_pack w WHERE w.org_id = p_org AND w.pack = n));
    END IF;
    DELETE FROM unnamed_blob b WHERE b.org_id = p_org AND b.kind = p_kind AND b.name = ANY (named);
    INSERT INTO unnamed_blob (org_id, kind, name, since_ms)
    SELECT p_org, p_kind, n, now_ms FROM unnest(p_names) AS n WHERE n <> ALL (named)
    ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT b.name FROM unnamed_blob b
    WHERE b.org_id = p_org AND b.kind = p_kind AND b.name = ANY (p_names) AND b.since_ms <= now_ms - p_retention;
END $$;
