-- Settings: an organisation's own, and those that workers have read in the files of its Locations.
SET LOCAL ROLE oc_owner;

CREATE TABLE organisation_setting (
    org_id uuid PRIMARY KEY REFERENCES organisation,
    -- JSON with comments, as an administrator wrote it. The store does not read it.
    bytes text NOT NULL,
    -- SHA-256 of the bytes, in hex.
    hash text COLLATE "C" NOT NULL,
    updated_ms bigint NOT NULL
);

-- The newest settings that a holder of the Location has read in its files. Workers write them, gateways read them.
CREATE TABLE location_settings (
    org_id uuid NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    -- JSON, which the store does not read: only the entries that count, no file's text.
    bytes text NOT NULL,
    -- SHA-256 of the bytes, in hex.
    hash text COLLATE "C" NOT NULL,
    -- The token of the worker that read them.
    token bigint NOT NULL,
    observed_ms bigint NOT NULL,
    PRIMARY KEY (org_id, location_id),
    FOREIGN KEY (org_id, location_id) REFERENCES location ON DELETE CASCADE
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['organisation_setting', 'location_settings'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_app, oc_migrate', name);
    END LOOP;
END $$;
RESET ROLE;
