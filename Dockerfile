# maxk and all it needs but the GPU driver, for Docker and Kubernetes (apptainer.def: the same for Apptainer).
#   docker build --tag maxk .                                             # add --build-arg LOCK=gpu for vLLM, DeepSpeed
#   docker run --rm maxk                                                  # the default experiment
#   docker run --rm --gpus all --volume "$PWD":/work --workdir /work maxk snakemake --cores all --configfile …
# Non-root and under Docker's default seccomp profile, where the grader confines programs by Landlock and seccomp.
FROM debian:bookworm-slim

# A compiler and Python's headers: Triton, which vLLM and `torch.compile` use, compiles kernels at run time.
# Debian keeps only the newest build of a stable release's package: pinned, the image could not be built again.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends \
        bubblewrap ca-certificates g++ git kubernetes-client libseccomp2 make python3 python3-dev python3-venv tini && \
    rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 maxk && \
    install --directory --owner maxk --group maxk /opt/maxk /opt/venv /work
USER 1000:1000
WORKDIR /opt/maxk

# gpu: every extra. cpu: the pipeline; torch comes from PyPI with CUDA unless an index with CPU builds is named:
# --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG LOCK=cpu
ARG PIP_EXTRA_INDEX_URL
# The lock alone decides this layer: changed code does not install everything anew.
COPY --chown=maxk:maxk requirements requirements
RUN python3 -m venv /opt/venv && \
    /opt/venv/bin/pip install --no-cache-dir --requirement "requirements/$LOCK.txt"
# LOGNAME: Kubernetes may run the image as an id without an account, for whose name Snakemake asks.
ENV PATH=/opt/venv/bin:$PATH LOGNAME=maxk OMP_NUM_THREADS=1 NVIDIA_DRIVER_CAPABILITIES=compute,utility

COPY --chown=maxk:maxk . .
RUN pip install --no-cache-dir --no-deps --editable . && \
    maxk --help > /dev/null
# As process 1 it hands a stop on to every process of a job, where a shell would keep it, and clears away orphans.
ENTRYPOINT ["tini", "-g", "--"]
CMD ["snakemake", "--cores", "all"]
