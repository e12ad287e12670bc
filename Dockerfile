# maxk and all it needs but the GPU driver, for Docker and Kubernetes (apptainer.def: the same for Apptainer).
#   docker build --tag maxk .
#   docker run --rm maxk                                                  # the default experiment
#   docker run --rm --gpus all --volume "$PWD":/work --workdir /work maxk snakemake --cores all --configfile …
# Non-root and under Docker's default seccomp profile, where the grader confines programs by Landlock and seccomp.
FROM debian:bookworm-slim

# Debian keeps only the newest build of a stable release's package: pinned, the image could not be built again.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends \
        bubblewrap ca-certificates git kubernetes-client libseccomp2 make python3 python3-venv tini && \
    rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 maxk && \
    install --directory --owner maxk --group maxk /opt/maxk /opt/venv /work
USER 1000:1000
WORKDIR /opt/maxk

# The pins alone decide this layer: changed code does not install everything anew. The empty module stands for that code:
# an editable install of a package without any would not find it later.
COPY --chown=maxk:maxk pyproject.toml README.md LICENSE ./
RUN mkdir -p src/maxk && \
    touch src/maxk/__init__.py && \
    python3 -m venv /opt/venv && \
    /opt/venv/bin/pip install --no-cache-dir --editable '.[kubernetes,slurm]'
ENV PATH=/opt/venv/bin:$PATH OMP_NUM_THREADS=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility

COPY --chown=maxk:maxk . .
RUN maxk --help > /dev/null
# As process 1 it hands a stop on to every process of a job, where a shell would keep it, and clears away orphans.
ENTRYPOINT ["tini", "-g", "--"]
CMD ["snakemake", "--cores", "all"]
