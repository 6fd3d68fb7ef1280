FROM python:3.12-slim

RUN useradd --create-home page && install -d -o page /home/page/.cache
WORKDIR /home/page/specviz
COPY requirements.txt .
# An index of its own has torch without CUDA: --build-arg TORCH=https://download.pytorch.org/whl/cpu
ARG TORCH=https://pypi.org/simple
RUN pip install --no-cache-dir --extra-index-url "$TORCH" -r requirements.txt
COPY --chown=page . .

USER page
ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860
EXPOSE 7860
CMD ["python", "app.py"]
