-- The pending asks of an organisation that saved permissions cover: each pattern that the ask offers to save is saved for
-- its project.
CREATE OR REPLACE FUNCTION covered_asks(p_org uuid)
RETURNS TABLE (id text) LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY
    SELECT a.id FROM ask a
        JOIN session s ON s.org_id = a.org_id AND s.incarnation = a.incarnation
        JOIN session_event e ON e.org_id = a.org_id AND e.incarnation = a.incarnation AND e.seq = a.asked_seq
    WHERE a.org_id = p_org AND a.status = 'pending' AND e.payload::jsonb#>'{about,save}' IS NOT NULL
        AND EXISTS (SELECT FROM saved_permission v WHERE v.org_id = p_org AND v.project_id = s.project_id)
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements_text(e.payload::jsonb#>'{about,save}') AS wanted (pattern)
            WHERE NOT EXISTS (SELECT FROM saved_permission v WHERE v.org_id = p_org
                AND v.project_id = s.project_id AND v.action = a.action AND v.pattern = wanted.pattern))
    ORDER BY a.id LIMIT 1000;
END $$;
