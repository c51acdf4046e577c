# One image for bookie, AutoRecovery, host, console and client: `docker run quire bookie start`, `docker run quire ledger list`, …
# docs/containers.md says how.
#
#   docker build --tag quire .
#   docker build --tag quire --build-arg BASE=IMAGE .     another Linux with Python 3.11 or newer, its venv module and a shell
#
# pip takes its own variables as arguments: PIP_INDEX_URL for an index of yours; without any network wheels from wheels/, by
# PIP_NO_INDEX=1 and PIP_FIND_LINKS=/src/wheels.
ARG BASE=python:3.13-slim

FROM ${BASE} AS built
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY . /src
# pip stays behind, in an environment of its own.
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/quire \
    && /pip/bin/python -m pip --python /opt/quire/bin/python install --no-cache-dir "/src[tls,zstd,console]" dumb-init

FROM ${BASE}
LABEL org.opencontainers.image.title="quire" \
      org.opencontainers.image.description="A leaderless, replicated ledger service that speaks Apache BookKeeper's protocol" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=built /opt/quire /opt/quire
COPY deploy/image /quire
COPY LICENSE /quire/
# The user that Pulsar's image has, and group 0, which may write what that user may: volumes of either fit the other.
# /data and /bookkeeper are where Apache's image and its Kubernetes files have a bookie's directories.
RUN mkdir -p /quire/secret /quire/data/journal /quire/data/ledgers /quire/data/index \
       /data/bookkeeper /bookkeeper/data/journal /bookkeeper/data/ledgers \
    && chown -R 10000:0 /quire /data /bookkeeper && chmod -R g=u /quire /data /bookkeeper \
    && ln -s /quire /pulsar && ln -s /quire /opt/bookkeeper \
    && echo "quire:x:10000:0::/quire:/bin/sh" >> /etc/passwd
ENV PATH=/quire/bin:/opt/quire/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 \
    BK_httpServerEnabled=true
WORKDIR /quire
USER 10000:0
EXPOSE 3181 8080
# A clean stop writes a checkpoint; what is killed instead loses nothing that was acknowledged, and replays its journal.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["healthcheck"]
ENTRYPOINT ["dumb-init", "--", "quire"]
CMD ["--help"]
