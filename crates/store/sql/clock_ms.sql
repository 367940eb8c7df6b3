-- The database's clock in milliseconds; it moves within a transaction.
CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = public, pg_temp AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;
