# docker build -t dreamerv3 .
# docker build -t dreamerv3 --build-arg JAX='jax[cuda13]' .    for Nvidia GPUs
# docker run -it --rm --gpus all -v ~/logdir:/logdir dreamerv3 \
#     --logdir '/logdir/{timestamp}' --configs crafter

FROM python:3.12-slim

WORKDIR /app
ENV PYTHONUNBUFFERED=1

# Packages first, so that a change of the code does not install them again.
ARG JAX=jax
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt "$JAX"

# Extras of suites, such as --build-arg EXTRAS='[crafter,gym]'.
ARG EXTRAS=
COPY . .
RUN pip install --no-cache-dir -e ".$EXTRAS"

ENTRYPOINT ["python", "dreamerv3/main.py"]
