/** Large self-hosted stacks in the shape of their published compose files, for keys and variables that the others do not have. See `popular-stacks.ts`. */
import { idle, image, serve, type PopularStack } from "./popular-stacks.ts";

export const largeStacks: readonly PopularStack[] = [
  {
    id: "dify",
    web: "nginx",
    classicLimit: /does not support the variable in "\$\{POSTGRES_USER:-\$\{DB_USERNAME\}\}"/,
    files: {
      ".env":
        "# ------------------------------\n# Environment Variables for API service & worker\n# ------------------------------\nCONSOLE_API_URL=\nSERVICE_API_URL=\nLANG=en_US.UTF-8\nLC_ALL=en_US.UTF-8\nLOG_LEVEL=INFO\nSECRET_KEY=sk-9f73s3ljTXVcMT3Blb3ljTqtsKiGHXVcMT3BlbkFJLK7U\nINIT_PASSWORD=\nDB_USERNAME=postgres\nDB_PASSWORD=difyai123456\nDB_HOST=db\nDB_PORT=5432\nDB_DATABASE=dify\nREDIS_PASSWORD=difyai123456\nCELERY_BROKER_URL=redis://:difyai123456@redis:6379/1\nVECTOR_STORE=weaviate\nPGDATA=/var/lib/postgresql/data/pgdata\nNGINX_SERVER_NAME=_\nNGINX_PORT=80\nNGINX_SSL_PORT=443\nEXPOSE_NGINX_PORT=18087\nEXPOSE_NGINX_SSL_PORT=18444\nCOMPOSE_PROFILES=${VECTOR_STORE:-weaviate}\nSSRF_HTTP_PORT=3128\n",
      "nginx/nginx.conf.template": "events {}\n",
      "nginx/docker-entrypoint.sh": '#!/bin/sh\nexec "$@"\n',
      "ssrf_proxy/squid.conf.template": "acl\n",
      "volumes/myscale/config/users.d/custom.xml": "<c/>\n",
    },
    compose: `# ==================================================================
# WARNING: This file is auto-generated
# ==================================================================
x-shared-env: &shared-api-worker-env
  CONSOLE_API_URL: \${CONSOLE_API_URL:-}
  SERVICE_API_URL: \${SERVICE_API_URL:-}
  LANG: \${LANG:-en_US.UTF-8}
  LOG_LEVEL: \${LOG_LEVEL:-INFO}
  LOG_DATEFORMAT: \${LOG_DATEFORMAT:-%Y-%m-%d %H:%M:%S}
  DEBUG: \${DEBUG:-false}
  SECRET_KEY: \${SECRET_KEY:-sk-9f73s3ljTXVcMT3Blb3ljTqtsKiGHXVcMT3BlbkFJLK7U}
  DB_USERNAME: \${DB_USERNAME:-postgres}
  CELERY_BROKER_URL: \${CELERY_BROKER_URL:-redis://:difyai123456@redis:6379/1}
  VECTOR_STORE: \${VECTOR_STORE:-weaviate}
  WEB_API_CORS_ALLOW_ORIGINS: \${WEB_API_CORS_ALLOW_ORIGINS:-*}
  POSTGRES_USER: \${POSTGRES_USER:-\${DB_USERNAME}}
  NGINX_KEEPALIVE_TIMEOUT: \${NGINX_KEEPALIVE_TIMEOUT:-65}
  TEMPLATE: \${TEMPLATE:-{{ message }}}

services:
  # Init container to fix permissions
  init_permissions:
    ${image}
    command:
      - sh
      - -c
      - |
        FLAG_FILE="/app/api/storage/.init_permissions"
        if [ -f "$\${FLAG_FILE}" ]; then
          echo "Permissions already initialized. Exiting."
          exit 0
        fi
        echo "Initializing permissions for /app/api/storage"
        chown -R 1001:1001 /app/api/storage && touch "$\${FLAG_FILE}"
        echo "Permissions initialized. Exiting."
    volumes:
      - ./volumes/app/storage:/app/api/storage
    restart: "no"
  api:
    ${image}
    restart: always
    environment:
      # Use the shared environment variables.
      <<: *shared-api-worker-env
      MODE: api
      SENTRY_DSN: \${API_SENTRY_DSN:-}
    depends_on:
      init_permissions:
        condition: service_completed_successfully
      db:
        condition: service_healthy
      redis:
        condition: service_started
    volumes:
      - ./volumes/app/storage:/app/api/storage
    networks:
      - ssrf_proxy_network
      - default
    command: ${serve(5001, "/app/api/storage")}
  worker:
    ${image}
    restart: always
    environment:
      <<: *shared-api-worker-env
      MODE: worker
    depends_on:
      init_permissions:
        condition: service_completed_successfully
      db:
        condition: service_healthy
    volumes:
      - ./volumes/app/storage:/app/api/storage
    networks: [ssrf_proxy_network, default]
    command: ${idle}
  db:
    ${image}
    profiles:
      - postgresql
      - weaviate
    restart: always
    environment:
      POSTGRES_PASSWORD: \${DB_PASSWORD:-difyai123456}
      PGDATA: \${PGDATA:-/var/lib/postgresql/data/pgdata}
    command: >
      sh -c "mkdir -p $$PGDATA; test -f $$PGDATA/born || cat /proc/sys/kernel/random/uuid > $$PGDATA/born; httpd -f -p 5432 -h $$PGDATA & trap 'exit 0' TERM; wait"
    volumes:
      - ./volumes/db/data:/var/lib/postgresql/data
    healthcheck:
      test:
        [
          'CMD', 'wget', '-q', '-O', '-',
          'http://127.0.0.1:5432/born',
        ]
      interval: 2s
      timeout: 3s
      retries: 60
  redis:
    ${image}
    restart: always
    environment:
      REDISCLI_AUTH: \${REDIS_PASSWORD:-difyai123456}
    volumes:
      - ./volumes/redis/data:/data
    command: ${idle}
    healthcheck:
      test: [ 'CMD-SHELL', 'test -d /data' ]
      interval: 2s
  ssrf_proxy:
    ${image}
    restart: always
    volumes:
      - ./ssrf_proxy/squid.conf.template:/etc/squid/squid.conf.template
    entrypoint: [ 'sh', '-c', "cp /etc/squid/squid.conf.template /tmp/squid.conf && sleep 86400 & trap 'exit 0' TERM; wait" ]
    environment:
      HTTP_PORT: \${SSRF_HTTP_PORT:-3128}
    networks: [ssrf_proxy_network, default]
  nginx:
    ${image}
    restart: always
    volumes:
      - ./nginx/nginx.conf.template:/etc/nginx/nginx.conf.template
      - ./nginx/docker-entrypoint.sh:/docker-entrypoint-mount.sh
      - ./volumes/certbot/conf:/etc/letsencrypt
      - ./volumes/certbot/www:/var/www/html
    entrypoint: [ 'sh', '-c', "cp /docker-entrypoint-mount.sh /tmp/docker-entrypoint.sh && chmod +x /tmp/docker-entrypoint.sh && /tmp/docker-entrypoint.sh sh -c 'cd /var/www/html; test -f born || cat /proc/sys/kernel/random/uuid > born; echo REVISION > revision; echo start >> starts; httpd -f -p $\${NGINX_PORT} -h /var/www/html & trap exit TERM; wait'" ]
    environment:
      NGINX_SERVER_NAME: \${NGINX_SERVER_NAME:-_}
      NGINX_PORT: \${NGINX_PORT:-80}
    depends_on:
      - api
      - worker
    ports:
      - '\${EXPOSE_NGINX_PORT:-80}:\${NGINX_PORT:-80}'
      - '\${EXPOSE_NGINX_SSL_PORT:-443}:\${NGINX_SSL_PORT:-443}'
  certbot:
    ${image}
    profiles: [certbot]
    volumes: ["./volumes/certbot/conf:/etc/letsencrypt"]
    command: ${idle}
  weaviate:
    ${image}
    profiles:
      - ''
      - weaviate
    restart: always
    volumes:
      - ./volumes/weaviate:/var/lib/weaviate
    environment:
      PERSISTENCE_DATA_PATH: \${WEAVIATE_PERSISTENCE_DATA_PATH:-/var/lib/weaviate}
    command: ${serve(8080, "/var/lib/weaviate")}
  qdrant:
    ${image}
    profiles: [qdrant]
    volumes: ["./volumes/qdrant:/qdrant/storage"]
    command: ${idle}
  oceanbase:
    ${image}
    container_name: oceanbase
    profiles: [oceanbase]
    volumes:
      - ./volumes/oceanbase/data:/root/ob
      - oradata:/opt/oracle
    command: ${idle}
networks:
  # create a network between sandbox, api and ssrf_proxy, and can not access outside.
  ssrf_proxy_network:
    driver: bridge
    internal: true
  milvus:
    driver: bridge
  opensearch-net:
    driver: bridge
    internal: true
volumes:
  oradata:
  dify_es01_data:
`,
  },
  {
    id: "zabbix",
    web: "zabbix-web",
    classicLimit: /'attach'; docker-compose 1\.29 does not support it/,
    files: {
      ".env":
        "ZABBIX_SERVER_PORT=18051\nZBX_FRONT_HTTP=18085\nDATA_DIRECTORY=./zbx_env\nENV_VARS_DIRECTORY=./env_vars\nRESTART_POLICY=unless-stopped\nTIMEZONE=\n",
      "env_vars/.env_srv": "# ZBX_LISTENIP=\nZBX_STARTPOLLERS=5\n",
      "env_vars/.env_web": "ZBX_SERVER_NAME=Composed installation\nPHP_TZ=Europe/Riga\n",
      "env_vars/.env_db_mysql": "MYSQL_DATABASE=zabbix\n",
      "env_vars/.MYSQL_USER": "zabbix",
      "env_vars/.MYSQL_PASSWORD": "zabbix",
      "compose_zabbix_components.yaml":
        'services:\n  server:\n    init: true\n    restart: "${RESTART_POLICY}"\n    attach: false\n    ulimits:\n      nproc: 6553\n      nofile:\n        soft: 4000\n        hard: 8000\n    volumes:\n      - /etc/localtime:/etc/localtime:ro\n      - ./zbx_env/usr/lib/zabbix/alertscripts:/usr/lib/zabbix/alertscripts:ro\n      - ./zbx_env/var/lib/zabbix/export:/var/lib/zabbix/export:rw\n      - snmptraps:/var/lib/zabbix/snmptraps:rw\n    tmpfs: /tmp\n    env_file:\n      - ./env_vars/.env_srv\n    networks:\n      database:\n        aliases:\n          - zabbix-server\n      backend:\n        aliases: [zabbix-server]\n      frontend:\n    sysctls:\n      - net.ipv4.ip_local_port_range=1024 64999\n      - net.ipv4.conf.all.accept_redirects=0\n    stop_grace_period: 30s\n    labels:\n      com.zabbix.company: "Zabbix SIA"\n      com.zabbix.component: "zabbix server"\n    image: svc/stack:1\n  server-mysql:\n    extends:\n      service: server\n    environment:\n      DB_SERVER_HOST: "mysql-server"\n      MYSQL_USER_FILE: /run/secrets/MYSQL_USER\n    secrets: [MYSQL_USER, MYSQL_PASSWORD]\n    labels:\n      com.zabbix.dbtype: "mysql"\n',
    },
    compose: `services:
  zabbix-server:
    extends:
      file: compose_zabbix_components.yaml
      service: server-mysql
    ports:
      - "\${ZABBIX_SERVER_PORT}:10051"
    depends_on:
      server-db-init:
        condition: service_completed_successfully
    command: ${serve(10_051, "/var/lib/zabbix/export", "test $$(cat /run/secrets/MYSQL_USER) = zabbix || exit 9")}
    deploy:
      resources:
        limits: { cpus: '0.70', memory: 1G }
        reservations: { cpus: '0.5', memory: 512M }
  server-db-init:
    extends:
      file: compose_zabbix_components.yaml
      service: server-mysql
    entrypoint: []
    command: ["/bin/sh","-c","until wget -q -O - http://mysql-server:3306/born; do sleep 0.2; done; echo migrated >> /var/lib/zabbix/export/migrated"]
    restart: "no"
    depends_on: [mysql-server]
  zabbix-web:
    ${image}
    env_file: [env_vars/.env_db_mysql, env_vars/.env_web]
    ports: ["\${ZBX_FRONT_HTTP}:8080"]
    healthcheck:
      test: ["CMD", "wget", "-q", "-O", "-", "http://localhost:8080/born"]
      interval: 2s
      timeout: 5s
      retries: 60
      start_period: 30s
    secrets:
      - MYSQL_USER
      - source: MYSQL_PASSWORD
        target: db_password
        mode: 0400
    networks: { backend: , frontend: , database: }
    volumes: ["./zbx_env/etc/ssl/nginx:/etc/ssl/nginx:ro", "webdata:/usr/share/zabbix"]
    command: ${serve(8080, "/usr/share/zabbix", "test -f /run/secrets/db_password || exit 9; test $$PHP_TZ = Europe/Riga || exit 8")}
    depends_on: [mysql-server, zabbix-server]
  mysql-server:
    ${image}
    secrets: [MYSQL_USER, MYSQL_PASSWORD]
    env_file: env_vars/.env_db_mysql
    volumes: ["./zbx_env/var/lib/mysql:/var/lib/mysql:rw"]
    networks: { database: { aliases: [zabbix-database] } }
    command: ${serve(3306, "/var/lib/mysql")}
    stop_grace_period: 1m
networks:
  frontend:
    driver: bridge
    enable_ipv6: false
  backend:
    driver: bridge
    internal: true
  database:
    driver: bridge
    internal: true
volumes:
  snmptraps:
  webdata:
secrets:
  MYSQL_USER: { file: ./env_vars/.MYSQL_USER }
  MYSQL_PASSWORD:
    file: ./env_vars/.MYSQL_PASSWORD
`,
  },
  {
    id: "penpot",
    web: "penpot-frontend",
    classicLimit: /PENPOT_TELEMETRY_ENABLED is not text, which docker-compose 1\.29 does not support/,
    compose: `## Common flags:
x-flags: &penpot-flags
  PENPOT_FLAGS: disable-email-verification enable-smtp enable-prepl-server disable-secure-session-cookies
x-uri: &penpot-public-uri
  PENPOT_PUBLIC_URI: http://localhost:9001
x-body-size: &penpot-http-body-size
  # Max body size (30MiB)
  PENPOT_HTTP_SERVER_MAX_BODY_SIZE: 31457280
networks:
  penpot:
volumes:
  penpot_postgres_v15:
  penpot_assets:
  # penpot_traefik:
services:
  penpot-frontend:
    image: "svc/stack:\${PENPOT_VERSION:-1}"
    restart: always
    ports:
      - 9001:8080
    volumes:
      - penpot_assets:/opt/data/assets
    depends_on:
      - penpot-backend
      - penpot-exporter
    networks:
      - penpot
    # labels:
    #   - "traefik.enable=true"
    environment:
      << : [*penpot-flags, *penpot-http-body-size]
    command: ${serve(8080, "/opt/data/assets", "test $${#PENPOT_FLAGS} -gt 3 || exit 9")}
  penpot-backend:
    image: "svc/stack:\${PENPOT_VERSION:-1}"
    restart: always
    volumes:
      - penpot_assets:/opt/data/assets
    depends_on:
      penpot-postgres:
        condition: service_healthy
      penpot-valkey:
        condition: service_healthy
    networks:
      - penpot
    environment:
      << : [*penpot-flags, *penpot-public-uri, *penpot-http-body-size]
      PENPOT_DATABASE_URI: postgresql://penpot-postgres/penpot
      PENPOT_TELEMETRY_ENABLED: true
      PENPOT_SMTP_PORT: 1025
      PENPOT_SMTP_TLS: false
    command: ${idle}
  penpot-exporter:
    image: "svc/stack:\${PENPOT_VERSION:-1}"
    restart: always
    networks: [penpot]
    environment:
      # Don't touch it
      PENPOT_PUBLIC_URI: http://penpot-frontend:8080
    command: ${idle}
  penpot-postgres:
    ${image}
    restart: always
    stop_signal: SIGINT
    healthcheck:
      test: ["CMD-SHELL", "test -f /var/lib/postgresql/data/born"]
      interval: 2s
      timeout: 10s
      retries: 5
      start_period: 2s
    volumes:
      - penpot_postgres_v15:/var/lib/postgresql/data
    networks: [penpot]
    environment:
      - POSTGRES_INITDB_ARGS=--data-checksums
      - POSTGRES_DB=penpot
    command: ${serve(5432, "/var/lib/postgresql/data")}
  penpot-valkey:
    ${image}
    restart: always
    healthcheck:
      test: ["CMD-SHELL", "true"]
      interval: 2s
    networks: [penpot]
    environment:
      - VALKEY_EXTRA_FLAGS=--maxmemory 128mb --maxmemory-policy volatile-lfu
    command: ${idle}
  penpot-mailcatch:
    ${image}
    restart: always
    expose:
      - '1025'
    ports:
      - 1080:1080
    networks: [penpot]
    command: ${idle}
`,
  },
  {
    id: "chatwoot",
    web: "rails",
    files: {
      ".env":
        "SECRET_KEY_BASE=replace_with_lengthy_secure_hex\nFRONTEND_URL=http://0.0.0.0:3000\nREDIS_PASSWORD=pw\nRAILS_ENV=production\nDEFAULT_LOCALE=\n# POSTGRES_DATABASE=\n",
      "docker/entrypoints/rails.sh": '#!/bin/sh\necho rails\nexec "$@"\n',
    },
    compose: `version: '3'

services:
  base: &base
    ${image}
    env_file: .env ## Change this file for customized env variables
    volumes:
      - storage_data:/app/storage

  rails:
    <<: *base
    depends_on:
      - postgres
      - redis
    ports:
      - '127.0.0.1:3000:3000'
    environment:
      - NODE_ENV=production
      - RAILS_ENV=production
      - INSTALLATION_ENV=docker
    volumes:
      - ./docker/entrypoints:/docker/entrypoints
      - storage_data:/app/storage
    entrypoint: /docker/entrypoints/rails.sh
    command: ${serve(3000, "/app/storage")}
    restart: always

  sidekiq:
    <<: *base
    depends_on: [postgres, redis]
    environment:
      - NODE_ENV=production
    command: ${idle}
    restart: always

  postgres:
    ${image}
    restart: always
    ports:
      - '127.0.0.1:5432:5432'
    volumes:
      - postgres_data:/var/lib/postgresql/data
    environment:
      - POSTGRES_DB=chatwoot
      - POSTGRES_USER=postgres
      # Please provide your own password.
      - POSTGRES_PASSWORD=
    command: ${serve(5432, "/var/lib/postgresql/data")}

  redis:
    ${image}
    restart: always
    command: ["sh", "-c", "echo --requirepass \\"$REDIS_PASSWORD\\"; sleep 86400 & trap 'exit 0' TERM; wait"]
    env_file: .env
    volumes:
      - redis_data:/data
    ports:
      - '127.0.0.1:6379:6379'

volumes:
  storage_data:
  postgres_data:
  redis_data:
`,
  },
  {
    id: "ghost",
    web: "ghost",
    settings: { caddy_port: 18_680, caddy_443_port: 18_643 },
    classicLimit: /does not support the variable in "\$\{ADMIN_DOMAIN:\+/,
    files: {
      ".env":
        "DOMAIN=example.com\nDATABASE_ROOT_PASSWORD=r\nDATABASE_PASSWORD=p\nUPLOAD_LOCATION=./data/ghost\nMYSQL_DATA_LOCATION=./data/mysql\nCOMPOSE_PROFILES=analytics\nADMIN_DOMAIN=\nmail__options__auth__pass='p$ss'\n",
      "caddy/Caddyfile": "x\n",
      "mysql-init/create-multiple-databases.sh": "#!/bin/bash\n",
    },
    compose: `services:
  caddy:
    ${image}
    restart: always
    ports:
      - "80:80"
      - "443:443"
    environment:
      DOMAIN: \${DOMAIN:?DOMAIN environment variable is required}
      ADMIN_DOMAIN: \${ADMIN_DOMAIN:-}
      ACTIVITYPUB_TARGET: \${ACTIVITYPUB_TARGET:-https://ap.ghost.org}
    volumes:
      - ./caddy:/etc/caddy
      - caddy_data:/data
      - caddy_config:/config
    depends_on:
      - ghost
    networks: [ghost_network]
    command: ${idle}
  ghost:
    image: svc/stack:\${GHOST_VERSION:-1}
    restart: always
    # This is required to import current config when migrating
    env_file:
      - .env
    environment:
      NODE_ENV: production
      url: https://\${DOMAIN:?DOMAIN environment variable is required}
      admin__url: \${ADMIN_DOMAIN:+https://\${ADMIN_DOMAIN}}
      database__connection__password: \${DATABASE_PASSWORD:?DATABASE_PASSWORD environment variable is required}
      tinybird__tracker__endpoint: https://\${DOMAIN}/.ghost/analytics/api/v1/page_hit
    volumes:
      - \${UPLOAD_LOCATION}:/var/lib/ghost/content
      - tinybird_files:/var/lib/ghost/core
    depends_on:
      db:
        condition: service_healthy
      tinybird-sync:
        condition: service_completed_successfully
        required: false
    ports: ["127.0.0.1:2368:2368"]
    networks: [ghost_network]
    command: ${serve(2368, "/var/lib/ghost/content")}
  db:
    ${image}
    restart: always
    expose: ["3306"]
    environment:
      MYSQL_ROOT_PASSWORD: \${DATABASE_ROOT_PASSWORD:?DATABASE_ROOT_PASSWORD environment variable is required}
      MYSQL_USER: \${DATABASE_USER:-ghost}
      MYSQL_MULTIPLE_DATABASES: activitypub
    volumes:
      - \${MYSQL_DATA_LOCATION}:/var/lib/mysql
      - ./mysql-init:/docker-entrypoint-initdb.d
    healthcheck:
      test: wget -q -O - http://127.0.0.1:3306/born
      interval: 2s
      retries: 120
    networks: [ghost_network]
    command: ${serve(3306, "/var/lib/mysql")}
  tinybird-sync:
    ${image}
    command: >
      sh -c "
        if [ -d /var/lib/ghost/core ]; then
          echo synced > /data/tinybird/synced;
        fi
      "
    volumes: ["tinybird_files:/data/tinybird", "tinybird_home:/home/tinybird"]
    networks: [ghost_network]
    profiles: [analytics]
    restart: no
  activitypub:
    ${image}
    profiles: [activitypub]
    command: ${idle}
    networks: [ghost_network]
volumes:
  caddy_data:
  caddy_config:
  tinybird_files:
  tinybird_home:
networks:
  ghost_network:
`,
  },
  {
    id: "gitlab",
    web: "gitlab",
    files: { ".env": "GITLAB_HOME=./gitlab\n" },
    compose: `services:
  gitlab:
    ${image}
    container_name: gitlab
    restart: always
    hostname: 'gitlab.example.com'
    environment:
      GITLAB_OMNIBUS_CONFIG: |
        # Add any other gitlab.rb configuration here, each on its own line
        external_url 'https://gitlab.example.com'
        gitlab_rails['gitlab_shell_ssh_port'] = 2424
    ports:
      - '18082:80'
      - '18445:443'
      - '2424:22'
    volumes:
      - '$GITLAB_HOME/config:/etc/gitlab'
      - '$GITLAB_HOME/logs:/var/log/gitlab'
      - '$GITLAB_HOME/data:/var/opt/gitlab'
    shm_size: '256m'
    command: ${serve(80, "/var/opt/gitlab", "echo $$GITLAB_OMNIBUS_CONFIG | grep -q external_url || exit 9")}
`,
  },
  {
    id: "minio",
    web: "nginx",
    files: {
      "nginx.conf": "events {}\n",
    },
    compose: `# Settings and configurations that are common for all containers
x-minio-common: &minio-common
  ${image}
  command: server --console-address ":9001" http://minio{1...4}/data{1...2}
  entrypoint: ["/bin/sh","-c","test \\"$$1 $$2 $$3\\" = 'server --console-address :9001' || exit 9; for d in /data1 /data2; do test -f $$d/born || cat /proc/sys/kernel/random/uuid > $$d/born; done; httpd -f -p 9000 -h /data1 & trap 'exit 0' TERM; wait","minio"]
  expose:
    - "9000"
    - "9001"
  # environment:
    # MINIO_ROOT_USER: minioadmin
  healthcheck:
    test: ["CMD", "wget", "-q", "-O", "-", "http://127.0.0.1:9000/born"]
    interval: 2s
    timeout: 5s
    retries: 30
services:
  minio1:
    <<: *minio-common
    hostname: minio1
    volumes:
      - data1-1:/data1
      - data1-2:/data2
  minio2:
    <<: *minio-common
    hostname: minio2
    volumes: [data2-1:/data1, data2-2:/data2]
  nginx:
    ${image}
    hostname: nginx
    volumes:
      - ./nginx.conf:/etc/nginx/nginx.conf:ro
      - www:/www
    ports:
      - "9000:9000"
      - "9001:9001"
    depends_on: [minio1, minio2]
    command: ${serve(9000, "/www", "wget -q -O - http://minio1:9000/born")}
## By default this config uses default local driver
volumes:
  www:
  data1-1:
  data1-2:
  data2-1:
  data2-2:
`,
  },
  {
    id: "openwebui",
    web: "open-webui",
    classicLimit: /pull_policy value 'missing' is not one of/,
    files: {
      Dockerfile: "FROM svc/stack:1\nARG OLLAMA_BASE_URL\nENV X=$OLLAMA_BASE_URL\n",
      "docker-compose.gpu.yaml":
        "services:\n  ollama:\n    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: ${OLLAMA_GPU_DRIVER-nvidia}\n              count: ${OLLAMA_GPU_COUNT-1}\n              capabilities:\n                - gpu\n",
    },
    compose: `services:
  ollama:
    volumes:
      - ollama:/root/.ollama
    container_name: ollama
    pull_policy: missing
    tty: true
    restart: unless-stopped
    image: svc/stack:\${OLLAMA_DOCKER_TAG-1}
    command: ${serve(11_434, "/root/.ollama")}
  open-webui:
    build:
      context: .
      args:
        OLLAMA_BASE_URL: '/ollama'
      dockerfile: Dockerfile
    image: ghcr.io/open-webui/open-webui:\${WEBUI_DOCKER_TAG-main}
    container_name: open-webui
    volumes:
      - open-webui:/app/backend/data
    depends_on:
      - ollama
    ports:
      - \${OPEN_WEBUI_PORT-3000}:8080
    environment:
      - 'OLLAMA_BASE_URL=http://ollama:11434'
      - 'WEBUI_SECRET_KEY='
    extra_hosts:
      - host.docker.internal:host-gateway
    restart: unless-stopped
    command: ${serve(8080, "/app/backend/data")}
volumes:
  ollama: {}
  open-webui: {}
`,
  },
];
