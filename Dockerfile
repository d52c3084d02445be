# The image is made from scratch: Debian's Python with the libraries it links to, the packages, the kernels and the code.
# It has no shell, no package manager and no pip. A release gives BASE by digest: --build-arg BASE=debian@sha256:...
# Everything is done on the platform that builds, and by its own programs, whichever platform (linux/amd64 or linux/arm64)
# the image is for: kernels are cross-compiled, and nothing has to be registered with the building machine's Linux.
ARG BASE=debian:trixie-slim

FROM --platform=$BUILDPLATFORM ${BASE} AS build
# Debian drops old versions of its packages, so pinning them would break the build; BASE by digest is the pin.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils-multiarch ca-certificates python3.13-venv qemu-user \
 && rm -rf /var/lib/apt/lists/*

# What Python needs of Debian. Its modules for curses, dbm, readline and sqlite3 go, for the libraries behind them.
FROM build AS system
ARG TARGETARCH
WORKDIR /packages
COPY deploy/debian_packages.txt ./
RUN dpkg --add-architecture "$TARGETARCH" \
 && apt-get update \
 && sed "s/$/:$TARGETARCH/" debian_packages.txt > packages.txt \
 && xargs --arg-file=packages.txt apt-get download \
 && mkdir -p /system/var/lib/dpkg/status.d \
 && for package in *.deb; do \
      dpkg-deb --extract "$package" /system || exit 1; \
      # Scanners of vulnerabilities read here what is installed.
      dpkg-deb --field "$package" > "/system/var/lib/dpkg/status.d/${package%%_*}" || exit 1; \
    done
WORKDIR /system
RUN for module in _curses _dbm _sqlite3 readline; do rm usr/lib/python3.13/lib-dynload/$module*.so || exit 1; done \
 && rm -rf usr/lib/*/gconv usr/share/lintian usr/share/man usr/share/doc/*/changelog* \
 && echo 'root:x:0:0:root:/root:/usr/sbin/nologin' > etc/passwd \
 && echo 'requant:x:65532:65532:requant:/nonexistent:/usr/sbin/nologin' >> etc/passwd \
 && printf 'root:x:0:\nrequant:x:65532:\n' > etc/group \
 && echo 'hosts: files dns' > etc/nsswitch.conf \
 && python3.13 -m compileall -q --invalidation-mode unchecked-hash -s /system -p / usr/lib/python3.13

# What compiles the kernels, on the platform that builds.
FROM build AS compiler
WORKDIR /app
COPY requirements/image.lock ./requirements/
# The secrets are optional: pip's settings of this machine, and certificates that they may name.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca-certificates,target=/run/ca-certificates.crt \
    python3.13 -m venv /compiler \
 && /compiler/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes \
    -r requirements/image.lock

FROM compiler AS packages
ARG TARGETARCH
# Wheels for what the image's C library can load: up to manylinux_2_41, that of Debian 13.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca-certificates,target=/run/ca-certificates.crt \
    case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) exit 1 ;; esac \
 && set -- --platform "manylinux2014_$machine" \
 && for minor in $(seq 17 41); do set -- "$@" --platform "manylinux_2_${minor}_$machine"; done \
 && python3.13 -m venv --without-pip .venv \
 && /compiler/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes --no-deps \
    --only-binary=:all: --python-version 3.13 --implementation cp "$@" --target .venv/lib/python3.13/site-packages \
    -r requirements/image.lock
# Only libraries with many symbols are stripped: those that wheels carry along (numpy.libs) would not load any more.
WORKDIR /app/.venv/lib/python3.13/site-packages
RUN rm -rf bench benchmarks bin docs \
 && find . -type d -name tests -prune -exec rm -r {} + \
 && find . -type f \( -name '*.a' -o -name '*.c' -o -name '*.h' -o -name '*.hpp' -o -name '*.pxd' -o -name '*.pyx' \) -delete \
 && strip --strip-unneeded llvmlite/binding/libllvmlite.so uvloop/loop.*.so \
 && python3.13 -m compileall -q --invalidation-mode unchecked-hash .

# Only what the kernels are compiled from, so that other changes leave them in the builder's cache.
FROM compiler AS kernels
ARG TARGETARCH
COPY core/requant/__init__.py core/requant/version.py ./requant/
COPY core/requant/formats ./requant/formats
COPY core/requant/kernels ./requant/kernels
# CPU levels, with spaces between them; none for all, as a release has them. A test does with that of its machine.
ARG LEVELS=
# hadolint ignore=SC2086
RUN case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) exit 1 ;; esac \
 && /compiler/bin/python -m requant.kernels.jit.bake /app/kernels --machine "$machine" ${LEVELS:+--levels $LEVELS}

FROM build AS code
WORKDIR /app
COPY core/requant ./requant
COPY service/requant_service ./requant_service
RUN chmod -R u=rwX,go=rX . \
 && python3.13 -m compileall -q --invalidation-mode unchecked-hash .

# Whatever was taken away above, the rest is whole: the image's own Python imports everything, under QEMU if it has to.
FROM build AS checked
ARG TARGETARCH
COPY --from=system /system/ /image/
COPY --from=packages /app/.venv /image/app/.venv
COPY --from=code /app /image/app
RUN emulator= \
 && if [ "$TARGETARCH" != "$(dpkg --print-architecture)" ]; then \
      case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac \
      && cp "/usr/bin/qemu-$machine" /image/emulator && emulator=/emulator; \
    fi \
 && PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1 chroot /image $emulator /app/.venv/bin/python -c \
      "import hpack, obstore.store, onnx, opentelemetry.exporter.otlp.proto.http, requant.command.main, requant_service.app"

FROM scratch
COPY --from=system /system/ /
COPY --from=packages /app/.venv /app/.venv
COPY --from=kernels /app/kernels /app/kernels
COPY --from=checked /image/app/requant /app/requant
COPY --from=checked /image/app/requant_service /app/requant_service
# What obstore trusts: it reads the certificates of the system.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
WORKDIR /app
ARG VERSION=1.0.0
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
    REQUANT_METRICS_PORT=9090 \
    REQUANT_LOG_FORMAT=json \
    REQUANT_WORKERS=auto \
    REQUANT_BAKED_KERNELS=/app/kernels \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
# HTTP, gRPC (where REQUANT_GRPC_PORT is set), metrics and probes.
EXPOSE 8080 8081 9090
STOPSIGNAL SIGTERM
# The port of metrics and probes is plain HTTP, whether requests come over TLS or a unix socket. A start that has to
# compile the kernels may take minutes.
HEALTHCHECK --interval=5s --timeout=3s --start-period=600s --retries=3 \
  CMD ["/app/.venv/bin/python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"REQUANT_METRICS_PORT\"]}/healthz', timeout=2)"]
ENTRYPOINT ["/app/.venv/bin/python", "-m", "requant", "serve"]
