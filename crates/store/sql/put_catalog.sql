-- Keeps a catalog and the two before it.
CREATE OR REPLACE FUNCTION put_catalog(p_version text, p_source text, p_fetched_ms bigint, p_body bytea) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO catalog_snapshot AS c (version, source, fetched_ms, body)
    VALUES (p_version, p_source, p_fetched_ms, p_body)
    ON CONFLICT (version) DO UPDATE SET source = excluded.source,
        fetched_ms = greatest(c.fetched_ms, excluded.fetched_ms);
    DELETE FROM catalog_snapshot WHERE version NOT IN (
        SELECT c.version FROM catalog_snapshot c ORDER BY c.fetched_ms DESC, c.version LIMIT 3);
END $$;
