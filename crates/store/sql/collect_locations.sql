-- Looks at the `p_limit` Locations after `p_after`: notes since when one is unused, and deletes those that have been for
-- `p_retention`. `last` is the last that was looked at, NULL behind the last of all. Their packs stay for collect_packs().
--
-- Locks what it is to delete, skips what others have locked, and looks again. Who begins to use a Location locks its row:
-- sessions through a foreign key, a seed and a Move that is admitted by themselves. So either this finds its use, or its
-- user finds no Location.
CREATE OR REPLACE FUNCTION collect_locations(
    p_org uuid, p_after text, p_limit integer, p_retention bigint,
    OUT last text, OUT looked integer, OUT deleted integer)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    tenant CONSTANT text := set_config('oc.org', p_org::text, true);
    now_ms CONSTANT bigint := clock_ms();
    page CONSTANT text[] := ARRAY(SELECT l.id FROM location l
        WHERE l.org_id = p_org AND l.id > p_after ORDER BY l.id LIMIT p_limit);
    used text[] := ARRAY(SELECT used_locations(p_org, page));
    unused text[];
BEGIN
    looked := cardinality(page);
    last := page[looked];
    deleted := 0;
    UPDATE location l SET unused_ms = CASE WHEN l.id = ANY (used) THEN NULL ELSE now_ms END
    WHERE l.org_id = p_org AND l.id IN (SELECT o.id FROM location o
        WHERE o.org_id = p_org AND o.id = ANY (page) AND (o.id = ANY (used)) = (o.unused_ms IS NOT NULL)
        ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED);
    unused := ARRAY(SELECT l.id FROM location l
        WHERE l.org_id = p_org AND l.id = ANY (page) AND l.unused_ms <= now_ms - p_retention
        ORDER BY l.id FOR UPDATE SKIP LOCKED);
    IF cardinality(unused) > 0 THEN
        -- In a statement of its own, which sees every use that was committed before the locks.
        used := ARRAY(SELECT used_locations(p_org, unused));
        WITH gone AS (DELETE FROM location l
            WHERE l.org_id = p_org AND l.id = ANY (unused) AND l.id <> ALL (used) RETURNING l.id)
        INSERT INTO gone_location (org_id, id, gone_ms) SELECT p_org, g.id, now_ms FROM gone g;
        GET DIAGNOSTICS deleted = ROW_COUNT;
    END IF;
END $$;
