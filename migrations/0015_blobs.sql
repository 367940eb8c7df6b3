-- Which blobs no row names, and since when that is known: they are deleted once no backup can need them.
SET LOCAL ROLE oc_owner;

CREATE TABLE unnamed_blob (
    org_id uuid NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('tool-output', 'snapshot')),
    name text COLLATE "C" NOT NULL,
    -- When that was seen first.
    since_ms bigint NOT NULL,
    PRIMARY KEY (org_id, kind, name)
);
ALTER TABLE unnamed_blob ENABLE ROW LEVEL SECURITY;
ALTER TABLE unnamed_blob FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON unnamed_blob TO oc_app
    USING (org_id = nullif(current_setting('oc.org', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('oc.org', true), '')::uuid);
CREATE POLICY migrate ON unnamed_blob TO oc_migrate USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON unnamed_blob TO oc_app, oc_migrate;

-- What one process of the cluster does from time to time, and when one last began to.
CREATE TABLE chore (
    name text COLLATE "C" PRIMARY KEY,
    begun_ms bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE, DELETE ON chore TO oc_app, oc_migrate;

-- Few rows have either: what is not spilled, and what earlier packs hold, costs nothing.
CREATE INDEX tool_result_managed ON tool_result (org_id, managed_path) WHERE managed_path IS NOT NULL;
CREATE INDEX workspace_pack_pack ON workspace_pack (org_id, pack) WHERE pack IS NOT NULL;

-- Whether it is the caller who does `p_name` now: true for one, and then for none until `p_every` has passed.
CREATE FUNCTION claim_chore(p_name text, p_every bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO chore AS c (name, begun_ms) VALUES (p_name, clock_ms())
    ON CONFLICT (name) DO UPDATE SET begun_ms = excluded.begun_ms
    WHERE excluded.begun_ms - c.begun_ms >= p_every OR excluded.begun_ms < c.begun_ms;
    RETURN FOUND;
END $$;

-- Of blobs that are there, notes those that no row names and forgets those that one does. Those that none has named
-- for `p_retention` are returned.
CREATE FUNCTION note_unnamed_blobs(p_org uuid, p_kind text, p_names text[], p_retention bigint)
RETURNS SETOF text LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    now_ms bigint := clock_ms();
    named text[];
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF p_kind = 'tool-output' THEN
        named := ARRAY(SELECT n FROM unnest(p_names) AS n WHERE EXISTS (
            SELECT FROM tool_result r WHERE r.org_id = p_org AND r.managed_path = '/tool-output/' || n));
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

-- Blobs are deleted.
CREATE FUNCTION forget_blobs(p_org uuid, p_kind text, p_names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    DELETE FROM unnamed_blob b WHERE b.org_id = p_org AND b.kind = p_kind AND b.name = ANY (p_names);
END $$;

REVOKE ALL ON FUNCTION claim_chore(text, bigint), note_unnamed_blobs(uuid, text, text[], bigint),
    forget_blobs(uuid, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_chore(text, bigint), note_unnamed_blobs(uuid, text, text[], bigint),
    forget_blobs(uuid, text, text[]) TO oc_app, oc_migrate;
RESET ROLE;
