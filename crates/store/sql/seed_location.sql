-- Says which files a Location begins with. 'seeded', 'used' (it has files of its own, or other ones to begin
-- with) or 'missing' (one of both). Locks the row of `p_from`, so that it is not deleted meanwhile.
CREATE OR REPLACE FUNCTION seed_location(p_org uuid, p_location text, p_from text, p_tree text)
RETURNS text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    PERFORM FROM location l WHERE l.org_id = p_org AND l.id = p_from FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'missing';
    END IF;
    UPDATE location l SET seed_location = p_from, seed_tree = p_tree
    WHERE l.org_id = p_org AND l.id = p_location
        AND (l.seed_tree IS NULL OR (l.seed_location = p_from AND l.seed_tree = p_tree))
        AND NOT EXISTS (SELECT FROM workspace_pack w WHERE w.org_id = p_org AND w.location_id = p_location);
    RETURN CASE WHEN FOUND THEN 'seeded'
        WHEN EXISTS (SELECT FROM location l WHERE l.org_id = p_org AND l.id = p_location) THEN 'used'
        ELSE 'missing' END;
END $$;
