# Mnemogate with all its stores. Build: docker build -t mnemogate .   Run: docker run -p 8080:8080 -v mnemogate:/data mnemogate
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY config ./config
COPY memory ./memory
COPY gateway ./gateway
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir "build>=1.2,<2" \
    && /opt/build/bin/python -m build --wheel --outdir /dist \
    && python3 -m venv /opt/mnemogate \
    && /opt/mnemogate/bin/pip install --no-cache-dir "$(ls /dist/*.whl)[all]"

FROM ${BASE}
# The same path as in the first stage: a virtual environment holds absolute ones.
COPY --from=build /opt/mnemogate /opt/mnemogate
RUN useradd --system --uid 10001 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin mnemogate \
    && install -d -o mnemogate -g mnemogate -m 0700 /data
ENV PATH=/opt/mnemogate/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MNEMOGATE_DATA=/data
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=2)"]
ENTRYPOINT ["mnemogate"]
CMD ["serve", "--host", "0.0.0.0"]
