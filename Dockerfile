# The image of every role, from the release archive that `./dev release` wrote to dist/.
#   docker build --tag opencode-cloud .
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS archive
COPY dist/opencode-cloud-*.tar.gz /archive/
# One archive exactly: with two, the tar of the second would fail as a file name in the first.
RUN mkdir /image \
    && tar -C /image --strip-components=1 -xzf /archive/*.tar.gz \
    && rm -rf /image/lib /image/share/man /image/share/bash-completion /image/share/zsh /image/share/fish \
    && install -d -o 65532 -g 65532 -m 0700 /image/volumes/data /image/volumes/secrets

FROM ${BASE}
# bash, git and ripgrep are for the commands of models; certificates for requests to providers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bash ca-certificates git ripgrep \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 65532 opencode-cloud \
    && useradd --uid 65532 --gid 65532 --home-dir /data --no-create-home --shell /usr/sbin/nologin opencode-cloud
COPY --from=archive /image/bin/opencode-cloud /usr/local/bin/opencode-cloud
COPY --from=archive /image/share/doc/opencode-cloud /usr/local/share/doc/opencode-cloud
# New volumes take over the owner of these folders.
COPY --from=archive --chown=65532:65532 /image/volumes/ /
USER 65532:65532
ENV HOME=/data OPENCODE_CLOUD_DATA_DIR=/data
WORKDIR /data
EXPOSE 4096
STOPSIGNAL SIGTERM
# It asks the command below. Another role, port or scheme needs a check of its own, as docker-compose.yml has.
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["opencode-cloud", "ready"]
ENTRYPOINT ["opencode-cloud"]
CMD ["serve", "--bind", "0.0.0.0"]
