-- Blobs are deleted.
CREATE OR REPLACE FUNCTION forget_blobs(p_org uuid, p_kind text, p_names text[]) RETURNS void
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    DELETE FROM unnamed_blob b WHERE b.org_id = p_org AND b.kind = p_kind AND b.name = ANY (p_names);
END $$;
