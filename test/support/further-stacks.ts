/** Further self-hosted stacks, chosen for keys of compose that the others do not have. See `popular-stacks.ts`. */
import { answers, healthy, idle, image, serve, type PopularStack } from "./popular-stacks.ts";

export const furtherStacks: readonly PopularStack[] = [
  {
    id: "outline",
    web: "https-portal",
    settings: { https_portal_port: 18_284, https_portal_443_port: 18_243 },
    files: {
      "docker.env":
        'SECRET_KEY=abc\nURL=https://docs.example.org\nPGSSLMODE=disable\nOIDC_DISPLAY_NAME="Single sign-on"\n',
      "redis.conf": "maxmemory 64mb\n",
    },
    compose: `services:
  outline:
    ${image}
    env_file: ./docker.env
    expose: ["3000"]
    volumes: ["storage-data:/var/lib/outline/data"]
    command: ${serve(3000, "/var/lib/outline/data", 'test "$$OIDC_DISPLAY_NAME" = "Single sign-on" || exit 9')}
    depends_on: [postgres, redis]
  redis:
    ${image}
    env_file: ./docker.env
    expose: ["6379"]
    volumes: ["./redis.conf:/redis.conf"]
    command: ${idle}
    ${healthy("test -f /redis.conf")}
  postgres:
    ${image}
    env_file: ./docker.env
    expose: ["5432"]
    volumes: ["database-data:/var/lib/postgresql/data"]
    environment: { POSTGRES_USER: "user", POSTGRES_PASSWORD: "pass", POSTGRES_DB: "outline" }
    command: ${serve(5432, "/var/lib/postgresql/data")}
    ${answers(5432)}
  https-portal:
    ${image}
    env_file: ./docker.env
    ports: ["80:80", "443:443"]
    links: [outline]
    restart: always
    volumes: ["https-portal-data:/var/lib/https-portal"]
    command: ${serve(80, "/var/lib/https-portal")}
    ${answers(80)}
    environment:
      DOMAINS: "docs.example.org -> http://outline:3000"
      STAGE: "production"
      WEBSOCKET: "true"
      CLIENT_MAX_BODY_SIZE: "0"
volumes: { https-portal-data: , storage-data: , database-data: }
`,
  },
  {
    id: "firefly",
    web: "app",
    settings: { app_port: 18_380 },
    files: {
      ".env": "APP_KEY=SomeRandomStringOf32CharsExactly\nTZ=Europe/Amsterdam\nSTATIC_CRON_TOKEN=\n",
      ".db.env":
        "MYSQL_RANDOM_ROOT_PASSWORD=yes\nMYSQL_USER=firefly\nMYSQL_PASSWORD=secret_firefly_password\n",
    },
    compose: `services:
  app:
    ${image}
    hostname: app
    container_name: firefly_iii_core
    networks: [firefly_iii]
    restart: always
    volumes: ["firefly_iii_upload:/var/www/html/storage/upload"]
    env_file: .env
    ports: ["80:8080"]
    command: ${serve(8080, "/var/www/html/storage/upload", "test $$TZ = Europe/Amsterdam || exit 9")}
    depends_on: [db]
  db:
    ${image}
    hostname: db
    container_name: firefly_iii_db
    networks: [firefly_iii]
    restart: always
    env_file: .db.env
    command: ${serve(3306, "/var/lib/mysql", "test $$MYSQL_USER = firefly || exit 9")}
    volumes: ["firefly_iii_db:/var/lib/mysql"]
  cron:
    ${image}
    restart: always
    container_name: firefly_iii_cron
    env_file: .env
    networks: [firefly_iii]
    entrypoint: /bin/sh
    command: |
      -c "until wget -q -O - http://app:8080/born; do sleep 1; done;
      echo \\"0 3 * * * wget -qO- http://app:8080/api/v1/cron/$$STATIC_CRON_TOKEN;echo\\";
      trap 'exit 0' TERM; sleep 86400 & wait"
volumes:
  firefly_iii_upload:
  firefly_iii_db:
networks:
  firefly_iii:
    driver: bridge
`,
  },
  {
    id: "plausible",
    web: "plausible",
    files: {
      ".env": "BASE_URL=http://localhost:8000\nSECRET_KEY_BASE=0123456789\nHTTP_PORT=8000\nTOTP_VAULT_KEY=\n",
      "clickhouse/logs.xml": "<clickhouse/>\n",
      "compose.override.yaml": 'services:\n  plausible:\n    ports: ["127.0.0.1:18800:${HTTP_PORT}"]\n',
    },
    compose: `services:
  plausible_db:
    ${image}
    restart: always
    volumes: ["db-data:/var/lib/postgresql/data"]
    environment: [POSTGRES_PASSWORD=postgres]
    command: ${serve(5432, "/var/lib/postgresql/data")}
    healthcheck: { test: ["CMD-SHELL", "wget -q -O - http://127.0.0.1:5432/born"], start_period: 1m, interval: 2s }
  plausible_events_db:
    ${image}
    restart: always
    volumes:
      - event-data:/var/lib/clickhouse
      - event-logs:/var/log/clickhouse-server
      - ./clickhouse/logs.xml:/etc/clickhouse-server/config.d/logs.xml:ro
    ulimits: { nofile: { soft: 1024, hard: 1024 } }
    environment: [CLICKHOUSE_SKIP_USER_SETUP=1]
    command: ${idle}
    healthcheck: { test: ["CMD-SHELL", "test -f /etc/clickhouse-server/config.d/logs.xml"], start_period: 1m, interval: 2s }
  plausible:
    ${image}
    restart: always
    command: ${serve(8000, "/var/lib/plausible", "mkdir -p $$TMPDIR; test -d /var/lib/plausible/tmp || exit 9")}
    depends_on:
      plausible_db: { condition: service_healthy }
      plausible_events_db: { condition: service_healthy }
    volumes: ["plausible-data:/var/lib/plausible"]
    ulimits: { nofile: { soft: 1024, hard: 1024 } }
    environment: [TMPDIR=/var/lib/plausible/tmp, "BASE_URL=\${BASE_URL}", "SECRET_KEY_BASE=\${SECRET_KEY_BASE}", HTTP_PORT, HTTPS_PORT, TOTP_VAULT_KEY, MAILER_EMAIL]
volumes: { db-data: , event-data: , event-logs: , plausible-data: }
`,
  },
  {
    id: "umami",
    web: "umami",
    classicLimit: /'restart'; docker-compose 1\.29 does not support it/,
    compose: `---
services:
  umami:
    ${image}
    ports: ["3000:3000"]
    environment: { DATABASE_URL: "postgresql://umami:umami@db:5432/umami", APP_SECRET: replace-me }
    depends_on:
      db:
        condition: service_healthy
        restart: true
    init: true
    restart: always
    volumes: [/app/cache, "umami-data:/app/data"]
    command: ${serve(3000, "/app/data")}
    ${answers(3000)}
  db:
    ${image}
    environment: { POSTGRES_DB: umami, POSTGRES_USER: umami, POSTGRES_PASSWORD: umami }
    volumes: ["umami-db-data:/var/lib/postgresql/data"]
    restart: always
    command: ${serve(5432, "/var/lib/postgresql/data")}
    ${healthy("test $${POSTGRES_USER} = umami -a -f /var/lib/postgresql/data/born")}
volumes:
  umami-db-data:
  umami-data:
`,
  },
  {
    id: "proxy-manager",
    web: "app-81",
    settings: { app_port: 18_484, app_443_port: 18_443, app_81_port: 18_481 },
    compose: `services:
  app:
    image: 'svc/stack:1'
    restart: unless-stopped
    ports:
      - '80:80' # Public HTTP Port
      - '443:443' # Public HTTPS Port
      - '81:81' # Admin Web Port
    environment: { TZ: "Australia/Brisbane", DB_MYSQL_HOST: "db", DB_MYSQL_PORT: 3306, DISABLE_IPV6: 'true' }
    volumes: ["./data:/data", "./letsencrypt:/etc/letsencrypt"]
    command: ${serve(81, "/data", "touch /etc/letsencrypt/x || exit 9")}
    ${answers(81)}
    depends_on: [db]
  db:
    image: 'svc/stack:1'
    restart: unless-stopped
    environment: { MYSQL_ROOT_PASSWORD: 'npm', MYSQL_DATABASE: 'npm', MARIADB_AUTO_UPGRADE: '1' }
    volumes: ["./mysql:/var/lib/mysql"]
    command: ${serve(3306, "/var/lib/mysql")}
`,
  },
  {
    id: "sentry",
    web: "nginx",
    files: {
      ".env":
        "COMPOSE_PROJECT_NAME=sentry-self-hosted\nCOMPOSE_PROFILES=feature-complete\nSENTRY_BIND=9000\nSENTRY_IMAGE=svc/stack:1\nHEALTHCHECK_INTERVAL=2s\n",
      "cron/Dockerfile": "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY entrypoint.sh /entrypoint.sh\n",
      "cron/entrypoint.sh": '#!/bin/sh\nexec "$@"\n',
      "sentry/sentry.conf.py": "DEBUG = False\n",
    },
    compose: `x-restart-policy: &restart_policy
  restart: unless-stopped
x-depends_on-healthy: &depends_on-healthy
  condition: service_healthy
x-healthcheck-defaults: &healthcheck_defaults
  interval: "$HEALTHCHECK_INTERVAL"
  timeout: 10s
  retries: 60
x-sentry-defaults: &sentry_defaults
  <<: *restart_policy
  image: "$SENTRY_IMAGE"
  depends_on:
    redis:
      <<: *depends_on-healthy
  volumes:
    - "sentry-data:/data"
    - "./sentry:/etc/sentry"
  environment:
    PYTHONUSERBASE: "/data/custom-packages"
    SNUBA: "http://snuba-api:1218"
    SENTRY_EVENT_RETENTION_DAYS:
services:
  redis:
    <<: *restart_policy
    ${image}
    command: ${idle}
    healthcheck:
      <<: *healthcheck_defaults
      test: "true"
    volumes: ["sentry-redis:/data"]
    ulimits: { nofile: { soft: 10032, hard: 10032 } }
  web:
    <<: *sentry_defaults
    command: ${serve(9000, "/data", "test -f /etc/sentry/sentry.conf.py || exit 9")}
    ulimits: { nofile: { soft: 4096, hard: 4096 } }
    healthcheck:
      <<: *healthcheck_defaults
      test: ["CMD", "/bin/sh", "-c", "wget -q -O - http://127.0.0.1:9000/born"]
  cleanup:
    <<: *sentry_defaults
    image: sentry-cleanup-self-hosted-local
    pull_policy: never
    build:
      context: ./cron
      args: { BASE_IMAGE: "$SENTRY_IMAGE" }
    entrypoint: ["/bin/sh", "/entrypoint.sh"]
    command: ${idle}
    profiles: [feature-complete]
  nginx:
    <<: *restart_policy
    ports: ["$SENTRY_BIND:80/tcp"]
    ${image}
    volumes: ["sentry-nginx-cache:/var/cache/nginx"]
    command: ${serve(80, "/var/cache/nginx", "until wget -q -O - http://web:9000/born; do sleep 0.2; done")}
    depends_on: [web]
volumes:
  sentry-data:
  sentry-redis:
  sentry-nginx-cache:
`,
  },
];
