# The server or an owner of a federation. The kit is a volume at /kit, an owner's data is at /data.
#   docker build -t fedsage .
#   docker run --read-only --tmpfs /tmp -p 8102:8102 -v ./kits/server:/kit fedsage
#   docker run --read-only --tmpfs /tmp -v ./kits/east:/kit -v ./patients:/data:ro fedsage start /kit --foreground --data /data
FROM python:3.12-slim

RUN useradd --uid 10001 --create-home fedsage
WORKDIR /opt/fedsage
COPY pyproject.toml constraints.txt README.md ./
COPY fedsage ./fedsage
RUN pip install --no-cache-dir -c constraints.txt '.[federation]'

# everything that is written goes to the kit or to /tmp: the rest may be read-only
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp NUMBA_CACHE_DIR=/tmp/numba
USER 10001
WORKDIR /kit
VOLUME /kit
EXPOSE 8102
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=20s --start-period=90s --retries=3 \
  CMD ["python", "-m", "fedsage.federation.processes.service", "/kit"]
ENTRYPOINT ["fedsage", "federation"]
CMD ["start", "/kit", "--foreground"]
