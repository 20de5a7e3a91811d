# The server and the command line, with the programs that gVisor needs. docs/many-machines.md says how to run it.
#   docker build -t torpor .
FROM node:24-bookworm-slim AS build
WORKDIR /src
COPY . .
RUN npm ci --no-audit --no-fund
RUN npm run build:packages

FROM node:24-bookworm-slim
# runsc is in Debian's backports.
RUN echo 'deb http://deb.debian.org/debian bookworm-backports main' > /etc/apt/sources.list.d/backports.list
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates debian-archive-keyring iproute2 mmdebstrap nftables tini && \
    apt-get install -y --no-install-recommends -t bookworm-backports runsc && \
    rm -rf /var/lib/apt/lists/*
# Not the package of the SDK, whose name begins in the same way.
COPY --from=build /src/dist/torpor-[0-9]*.tgz /opt/torpor/
# Node is in the image already, and without scripts the package `node` brings no second one. Terminals need an optional package.
RUN npm install --global --ignore-scripts --no-audit --no-fund /opt/torpor/torpor-*.tgz && npm cache clean --force
ENV TORPOR_DATA_DIR=/data HOME=/data
WORKDIR /data
EXPOSE 7676
# Processes whose parents have ended become children of the first process.
ENTRYPOINT ["/usr/bin/tini", "--", "torpor"]
CMD ["up", "--host", "0.0.0.0"]
