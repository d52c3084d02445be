# Two stages at the same path, so that the virtual environment and the kernel cache stay valid. A release gives BASE by
# digest: --build-arg BASE=debian@sha256:...
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
# Debian drops old versions of its packages, so pinning them would break the build; BASE by digest is the pin.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY requirements.lock ./
RUN python3 -m venv .venv \
 && .venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock \
 && .venv/bin/python -m compileall -q .venv
COPY core ./core
COPY service ./service
RUN .venv/bin/python -m compileall -q core service \
 && .venv/bin/python -m core.kernels.jit.baked /app/kernels

FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /app /app
WORKDIR /app
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="requant" \
      org.opencontainers.image.description="Bit-exact quantization arithmetic as an HTTP microservice" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# Nothing is written: the kernels of this CPU's level are read where they were baked. They belong to root.
ENV REQUANT_HOST=0.0.0.0 \
    REQUANT_PORT=8080 \
    REQUANT_LOG_FORMAT=json \
    REQUANT_BAKED_KERNELS=/app/kernels \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 \
  CMD ["/app/.venv/bin/python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"REQUANT_PORT\"]}/healthz', timeout=2)"]
ENTRYPOINT ["/app/.venv/bin/python", "-m", "service"]
