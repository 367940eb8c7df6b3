-- The settings of an organisation and of one of its Locations, which is found by what the caller knows of it: the
-- Location itself, a session at it, or the project or the directory that it is the first place of. By NULLs alone it is
-- none. Always one row, without what is not there; and without bytes that the caller knows by their hash.
CREATE OR REPLACE FUNCTION read_settings(
    p_org uuid, p_location text, p_session text, p_project text, p_directory text,
    p_known_organisation text, p_known_location text,
    OUT organisation_hash text, OUT organisation_bytes text, OUT organisation_ms bigint,
    OUT location_hash text, OUT location_bytes text, OUT location_token bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    at text := p_location;
BEGIN
    SELECT o.hash, CASE WHEN o.hash IS DISTINCT FROM p_known_organisation THEN o.bytes END, o.updated_ms
    INTO organisation_hash, organisation_bytes, organisation_ms
    FROM organisation_setting o WHERE o.org_id = p_org;
    IF p_session IS NOT NULL THEN
        SELECT s.location_id INTO at FROM session s WHERE s.org_id = p_org AND s.id = p_session;
    ELSIF p_project IS NOT NULL THEN
        SELECT l.id INTO at FROM project p
        JOIN location l ON l.org_id = p.org_id AND l.project_id = p.id AND l.directory = p.worktree
        WHERE p.org_id = p_org AND p.id = p_project;
    ELSIF p_directory IS NOT NULL THEN
        SELECT l.id INTO at FROM project p
        JOIN location l ON l.org_id = p.org_id AND l.project_id = p.id AND l.directory = p.worktree
        WHERE p.org_id = p_org AND p.space = '' AND p.worktree = p_directory;
    END IF;
    SELECT l.hash, CASE WHEN l.hash IS DISTINCT FROM p_known_location THEN l.bytes END, l.token
    INTO location_hash, location_bytes, location_token
    FROM location_settings l WHERE l.org_id = p_org AND l.location_id = at;
END $$;
