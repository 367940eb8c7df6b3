-- Empties the partition of session_change that the next hour will use. It has rows of three hours ago and older. Returns
-- whether it had any of all
-- organisations. It waits a second at most for a reader.
CREATE OR REPLACE FUNCTION forget_changes() RETURNS boolean
LANGUAGE plpgsql SET search_path = public, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    name CONSTANT text := 'session_change_' || (date_part('hour', now() AT TIME ZONE 'UTC')::integer + 1) % 4;
BEGIN
    IF pg_relation_size(name::regclass) = 0 THEN
        RETURN false;
    END IF;
    EXECUTE format('TRUNCATE %I', name);
    RETURN true;
END $$;
