# A tag can change. No digest stands here, because none could be looked up where this was written:
# 'docker buildx imagetools inspect python:3.12-slim' prints the tag's, for
# --build-arg BASE=python:3.12-slim@sha256:...
ARG BASE=python:3.12-slim
FROM ${BASE}

# It passes signals on, and takes care of processes whose parents have ended.
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home page && install -d -o page /home/page/.cache
WORKDIR /opt/specviz
COPY requirements.lock requirements-torch.lock ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
# An index that has torch without CUDA: --build-arg TORCH=https://download.pytorch.org/whl/cpu
# Nothing but torch is taken from there.
ARG TORCH=
RUN if [ -n "$TORCH" ]; \
    then pip install --no-cache-dir --no-deps --index-url "$TORCH" \
         "$(grep -o '^torch==[^ ;]*' requirements-torch.lock)"; \
    else pip install --no-cache-dir --no-deps --require-hashes -r requirements-torch.lock; \
    fi
# It stays root's: the page's user can read it, and not change it.
COPY . .
RUN python -m compileall -q app.py specviz

USER page
ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['GRADIO_SERVER_PORT'] + '/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--"]
CMD ["python", "app.py"]
