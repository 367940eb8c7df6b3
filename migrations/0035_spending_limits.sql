-- Monthly limits of cost.
SET LOCAL ROLE oc_owner;

CREATE TABLE spending_limit (
    org_id uuid NOT NULL REFERENCES organisation,
    -- A person as usage has them; '' is the organisation together, '*' each person without a row.
    whose text COLLATE "C" NOT NULL,
    -- Billionths of a dollar in a calendar month of UTC.
    monthly_nanos bigint NOT NULL,
    set_ms bigint NOT NULL,
    PRIMARY KEY (org_id, whose)
);
ALTER TABLE spending_limit ENABLE ROW LEVEL SECURITY;
ALTER TABLE spending_limit FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON spending_limit TO oc_app
    USING (org_id = nullif(current_setting('oc.org', true), '')::uuid)
    WITH CHECK (org_id = nullif(current_setting('oc.org', true), '')::uuid);
CREATE POLICY migrate ON spending_limit TO oc_migrate USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON spending_limit TO oc_app, oc_migrate;
RESET ROLE;
