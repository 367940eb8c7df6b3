-- The version of the projector, which every row of a projection has.
CREATE OR REPLACE FUNCTION projector_version() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 6::smallint;
