/** Stacks in the shape of published compose files whose keys and forms the other stacks do not have. */
import { answers, healthy, idle, image, serve, type PopularStack } from "./popular-stacks.ts";

export const publishedStacks: readonly PopularStack[] = [
  {
    // A hardened single service.
    id: "grocy",
    web: "grocy",
    compose: `name: grocy
x-hardened: &hardened
  read_only: true
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
x-logging: &logging
  logging: { driver: json-file, options: { max-size: 1m, max-file: "2" } }
services:
  grocy:
    <<: [*hardened, *logging]
    ${image}
    container_name: grocy
    hostname: grocy
    stop_signal: SIGQUIT
    stop_grace_period: 20s
    shm_size: 32m
    tmpfs: [/tmp, "/run:size=4m,mode=1777"]
    labels: ["org.example.price=$$5", "org.example.empty"]
    platform: linux/amd64
    pull_policy: if_not_present
    scale: 1
    ports:
      - { name: http, target: 80, published: "19283", protocol: tcp, mode: host, app_protocol: http }
    volumes:
      - { type: volume, source: config, target: /config, volume: { nocopy: true } }
    command: ${serve(80, "/config", "touch /tmp/x /run/x || exit 9; ! touch /x 2>/dev/null || exit 8")}
    ${answers(80)}
volumes: { config: {} }
`,
  },
  {
    // A replica set that a one-shot service sets up.
    id: "rocketchat",
    web: "rocketchat",
    settings: { reg_token: "" },
    files: {
      ".env":
        "# Release\nRELEASE='1.0'\nPORT=19300\nHOST_PORT=${PORT}\nROOT_URL=http://localhost:${HOST_PORT}\n",
    },
    compose: `volumes:
  mongodb_data: { driver: local }
  uploads:
services:
  rocketchat:
    ${image}
    restart: always
    labels: { traefik.enable: "true", traefik.http.routers.rocketchat.rule: "Host(\`\${DOMAIN:-}\`)" }
    environment:
      MONGO_URL: "mongodb://mongodb:\${MONGODB_PORT_NUMBER:-27017}/rocketchat?replicaSet=\${MONGODB_REPLICA_SET_NAME:-rs0}"
      ROOT_URL: \${ROOT_URL:-http://localhost:\${HOST_PORT:-3000}}
      PORT: \${PORT:-3000}
      REG_TOKEN: \${REG_TOKEN}
    depends_on:
      mongodb: { condition: service_healthy }
      mongo-init: { condition: service_completed_successfully }
    expose: ["\${PORT:-3000}"]
    ports: ["\${BIND_IP:-127.0.0.1}:\${HOST_PORT:-3000}:\${PORT:-3000}"]
    volumes: ["uploads:/app/uploads"]
    command: ${serve(19_300, "/app/uploads", "echo $${ROOT_URL} | grep -q http://localhost:193 || exit 9")}
    ${answers(19_300)}
  mongodb:
    ${image}
    restart: on-failure:5
    volumes: ["mongodb_data:/bitnami/mongodb"]
    command: ${serve(27_017, "/bitnami/mongodb")}
    ${answers(27_017)}
  mongo-init:
    ${image}
    restart: "no"
    depends_on: { mongodb: { condition: service_healthy } }
    command: ["/bin/sh", "-c", "wget -q -O - http://mongodb:27017/born"]
`,
  },
  {
    // Networks with aliases, replicas and an internal network.
    id: "kafka",
    web: "ui",
    compose: `services:
  broker:
    ${image}
    hostname: broker
    networks: { inside: { aliases: [kafka, "broker.local"] } }
    environment: { KAFKA_NODE_ID: 1, KAFKA_ADVERTISED_LISTENERS: "PLAINTEXT://kafka:9092", KAFKA_AUTO_CREATE: null }
    volumes: ["broker:/var/lib/kafka/data"]
    command: ${serve(9092, "/var/lib/kafka/data")}
    ${answers(9092)}
  worker:
    ${image}
    deploy: { replicas: 2, resources: { limits: { memory: 64M, cpus: "0.5", pids: 64 }, reservations: { memory: 16M } }, restart_policy: { condition: any } }
    networks: [inside]
    depends_on: { broker: { condition: service_healthy } }
    command: ["/bin/sh", "-c", "while wget -q -O - http://broker.local:9092/born; do sleep 5; done"]
  ui:
    ${image}
    ports: ["19092:8080"]
    networks: { inside: , outside: { priority: 100 } }
    extra_hosts: ["kafka-host=127.0.0.1", "other:::1"]
    dns_search: example.org
    links: ["broker:b"]
    depends_on: [broker]
    volumes: ["ui:/data"]
    command: ${serve(8080, "/data", "grep -q kafka-host /etc/hosts || exit 9")}
    ${answers(8080)}
networks:
  inside: { internal: true }
  outside: { driver: bridge }
volumes: { broker: , ui: }
`,
  },
  {
    // Inline configs, secrets and environment files.
    id: "vikunja",
    web: "vikunja",
    files: { "secrets/db.txt": "s3cret\n", "vikunja.env": 'export MODE=prod\nNAME="two words" # comment\n' },
    compose: `services:
  vikunja:
    ${image}
    env_file: [vikunja.env, { path: local.env, required: false }]
    configs:
      - { source: app, target: /etc/vikunja/config.yml, mode: 0444 }
    secrets: [db, { source: db, target: other }]
    ports: ["19345:3456"]
    volumes: ["./files:/files"]
    command: ${serve(3456, "/files", 'test "$$MODE $$NAME" = "prod two words" -a "$$(cat /run/secrets/db)" = s3cret -a -f /run/secrets/other && grep -q "mode: REVISION" /etc/vikunja/config.yml || exit 9')}
    ${answers(3456)}
configs:
  app:
    content: |
      mode: REVISION
      url: \${URL:-http://localhost}
secrets:
  db: { file: ./secrets/db.txt }
`,
  },
  {
    // Images that are built inline, in stages, one from the other.
    id: "drone",
    web: "server",
    files: {
      "web/Dockerfile":
        "ARG BASE=svc/stack\nFROM ${BASE}:1 AS base\nENV STAGE=base\nFROM base AS prod\nARG VERSION\nENV VERSION=${VERSION}\nFROM base AS dev\nENV STAGE=dev\n",
    },
    compose: `services:
  server:
    build: { context: ./web, target: prod, args: [VERSION=REVISION], labels: { a: b } }
    ports: ["19080:80"]
    volumes: ["data:/data"]
    command: ${serve(80, "/data", "test $$VERSION = REVISION -a $$STAGE = base || exit 9")}
    ${answers(80)}
    develop: { watch: [{ path: ./web, action: rebuild }] }
  runner:
    build: { context: ., dockerfile_inline: "FROM svc/stack:1\\nENV RUNNER=yes\\n" }
    depends_on: { server: { condition: service_healthy, required: true } }
    command: ["/bin/sh", "-c", "test $$RUNNER = yes || exit 9; trap 'exit 0' TERM; sleep 86400 & wait"]
    healthcheck: { disable: true }
volumes: { data: { labels: { keep: "yes" } } }
`,
  },
  {
    // Data that services share by their containers.
    id: "wekan",
    web: "wekan",
    compose: `version: "3.9"
services:
  wekan:
    ${image}
    ports: ["19081-19082:8080-8081"]
    volumes: ["wekan:/data:rw", "wekan-db:/dump:ro"]
    command: ${serve(8080, "/data")}
    ${answers(8080)}
  backup:
    ${image}
    volumes_from: ["wekan:ro"]
    network_mode: "service:wekan"
    pid: "service:wekan"
    depends_on: [wekan]
    command: ["/bin/sh", "-c", "test -d /data || exit 9; trap 'exit 0' TERM; sleep 86400 & wait"]
    healthcheck: { test: ["NONE"] }
  db:
    ${image}
    entrypoint: ["/bin/sh", "-c"]
    command: [${JSON.stringify("test -f /data/born || echo 1 > /data/born; trap 'exit 0' TERM; sleep 86400 & wait")}]
    volumes: ["wekan-db:/data"]
    ${healthy("test -f /data/born")}
volumes: { wekan: , wekan-db: { driver: local } }
`,
  },
  {
    // Optional parts in profiles and an included file.
    id: "supabase",
    web: "kong",
    files: {
      ".env": "COMPOSE_PROFILES=storage\nKONG_HTTP_PORT=19800\nJWT=a$$b\n",
      "db/compose.yaml": `services:
  db:
    ${image}
    volumes: ["./init.sql:/docker-entrypoint-initdb.d/init.sql:ro", "db:/var/lib/postgresql/data"]
    command: ${serve(5432, "/var/lib/postgresql/data", "test -s /docker-entrypoint-initdb.d/init.sql || exit 9")}
    ${answers(5432)}
volumes: { db: }
`,
      "db/init.sql": "select 1;\n",
    },
    compose: `include: [{ path: db/compose.yaml }]
services:
  kong:
    ${image}
    ports: ["\${KONG_HTTP_PORT}:8000/tcp"]
    depends_on: { db: { condition: service_healthy }, storage: { condition: service_started, required: false } }
    environment: { JWT: }
    volumes: ["kong:/data"]
    command: ${serve(8000, "/data")}
    ${answers(8000)}
  storage:
    ${image}
    profiles: [storage]
    volumes: ["./volumes/storage:/var/lib/storage"]
    command: ${serve(5000, "/var/lib/storage")}
    ${answers(5000)}
  studio:
    ${image}
    profiles: [studio]
    command: ${idle}
volumes: { kong: }
`,
  },
  {
    // Services that extend a common file, and UDP beside TCP.
    id: "syncthing",
    web: "syncthing-8384",
    files: {
      "common.yml": `services:\n  base:\n    ${image}\n    init: true\n    restart: unless-stopped\n    environment: [PUID=1000, TZ=Etc/UTC]\n    ulimits: { nofile: 1024 }\n`,
    },
    compose: `services:
  syncthing:
    extends: { file: common.yml, service: base }
    environment: { PGID: "1000" }
    ports:
      - 22000:22000/tcp
      - 22000:22000/udp
      - 127.0.0.1:8384:8384
      - "[::1]:21027:21027/udp"
    volumes: ["./st-sync:/var/syncthing", "/etc/localtime:/etc/localtime:ro"]
    command: ${serve(8384, "/var/syncthing", "test $$PUID$$PGID = 10001000 || exit 9")}
    ${answers(8384)}
  relay:
    extends: syncthing
    ports: !reset []
    volumes: !override ["relay:/var/syncthing"]
volumes: { relay: }
`,
  },
];
