-- What projections say of the projector that wrote them.
CREATE OR REPLACE FUNCTION projector_version() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 6::smallint;
