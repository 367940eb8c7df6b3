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
    IF FOUND THEN
        -- A repository's own packs are in no snapshot: who has its files needs them too.
        INSERT INTO location_origin (org_id, location_id, kind, repository_id, wanted, commit, branch, packs_through,
            filled_token, staged, wip)
        SELECT p_org, p_location, o.kind, o.repository_id, o.wanted, o.commit, o.branch, o.packs_through, o.filled_token,
            o.staged, o.wip
        FROM location_origin o WHERE o.org_id = p_org AND o.location_id = p_from AND o.filled_token IS NOT NULL
        ON CONFLICT (org_id, location_id) DO NOTHING;
        RETURN 'seeded';
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM location l WHERE l.org_id = p_org AND l.id = p_location) THEN 'used'
        ELSE 'missing' END;
END $$;
