-- no-transaction
CREATE INDEX CONCURRENTLY location_origin_commit ON location_origin (org_id, repository_id, commit);
