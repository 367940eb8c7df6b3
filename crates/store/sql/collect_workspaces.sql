-- Forgets what workspaces were made of and made into, once nobody needs it: patches and bundles of more than a day ago; uploads
-- of more than a day ago, unless a Location that has no snapshot yet begins with them; and repositories, with their packs,
-- that no Location has begun with for `p_retention`. Returns how many. Their blobs are then without a row.
--
-- Locks nothing but what it deletes. A Location begins with an upload that is less than 20 hours old, and says that it uses a
-- repository before it names it; so neither goes between.
CREATE OR REPLACE FUNCTION collect_workspaces(p_org uuid, p_retention bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    now_ms CONSTANT bigint := clock_ms();
    day_ago CONSTANT bigint := now_ms - 86400000;
    deleted integer;
    more integer;
BEGIN
    DELETE FROM session_out o WHERE o.org_id = p_org AND o.asked_ms < day_ago;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    DELETE FROM upload u WHERE u.org_id = p_org AND u.created_ms < day_ago AND NOT EXISTS (
        SELECT FROM location_origin o WHERE o.org_id = p_org AND u.id IN (o.commits_upload, o.changes_upload)
            AND NOT EXISTS (SELECT FROM workspace_pack w WHERE w.org_id = p_org AND w.location_id = o.location_id));
    GET DIAGNOSTICS more = ROW_COUNT;
    deleted := deleted + more;
    DELETE FROM repository r WHERE r.org_id = p_org
        AND greatest(r.seen_ms, r.fetched_ms, r.created_ms) < least(now_ms - p_retention, day_ago)
        AND NOT EXISTS (SELECT FROM location_origin o WHERE o.org_id = p_org AND o.repository_id = r.id);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN deleted + more;
END $$;
