# docker build -t dreamerv3 .                                   for CPUs
# docker build -t dreamerv3 --build-arg JAX='jax[cuda13]' .     for Nvidia GPUs (or jax[cuda12])
# docker build -t dreamerv3 --build-arg EXTRAS='[atari,dmc]' .  with packages of suites, '[all]' all
# docker run -it --rm --gpus all -v ~/logdir:/logdir dreamerv3 \
#     --logdir '/logdir/{timestamp}' --configs crafter

FROM python:3.12-slim-bookworm

# Of the suites: rendering without a display for MuJoCo (dmc, loconav, memmaze), and what the
# games of procgen draw with.
RUN apt-get update && apt-get install -y --no-install-recommends \
        libegl1 \
        libgl1 \
        libosmesa6 \
        libqt5gui5 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
ENV PYTHONUNBUFFERED=1

# Packages first, so that a change of the code does not install them again.
ARG JAX=jax
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt "$JAX"

ARG EXTRAS=
COPY . .
RUN pip install --no-cache-dir -e ".$EXTRAS"

# `view` needs --host 0.0.0.0 and docker run -p 127.0.0.1:8000:8000 to be seen outside.
EXPOSE 8000
ENTRYPOINT ["python", "dreamerv3/main.py"]
