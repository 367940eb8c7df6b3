-- What people send from their own machines, Locations that begin with it, and what is needed to forget what nobody uses.
SET LOCAL ROLE oc_owner;

-- A pack that somebody has sent; its blob has the same id. It is forgotten after a day unless a Location still needs it.
CREATE TABLE upload (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    bytes bigint NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);
ALTER TABLE upload ENABLE ROW LEVEL SECURITY;
ALTER TABLE upload FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON upload TO oc_app
    USING (org_id = nullif(current_setting('oc.org', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('oc.org', true), '')::uuid);
CREATE POLICY migrate ON upload TO oc_migrate USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON upload TO oc_app, oc_migrate;

-- When a session was last begun with the repository.
ALTER TABLE repository ADD COLUMN seen_ms bigint;

ALTER TABLE location_origin
    -- The uploads with the commits that the repository's packs lacked, and with the changes that were not committed.
    ADD COLUMN commits_upload text,
    ADD COLUMN changes_upload text,
    -- The changes that were not committed, as two commits: of the index, and of all files. NULL if there were none.
    ADD COLUMN staged text,
    ADD COLUMN wip text,
    -- Whether the Location's seed is only the first one of the same commit, so that equal content is stored once. Its files
    -- come from the repository all the same.
    ADD COLUMN shares_base boolean NOT NULL DEFAULT false;

-- The code knows the kinds, and more come. The build before writes the old ones only, with or without the check.
-- Contract: unused since schema 33
ALTER TABLE unnamed_blob DROP CONSTRAINT unnamed_blob_kind_check;
RESET ROLE;
