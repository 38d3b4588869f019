/** Popular self-hosted stacks in the shape of their published compose files, with stand-in images. */

export interface PopularStack {
  readonly id: string;
  /**
   * The compose file. `REVISION` is the number of the version, and `OWN_NETWORK_8` the start of an address in the test
   * engine's range, such as `10.232.8`; a host's firewall may drop others.
   */
  readonly compose: string;
  /** Further files of the package. */
  readonly files?: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, string | number>>;
  /** Settings that only regular users need, because some ports are for root. */
  readonly userSettings?: Readonly<Record<string, string | number>>;
  /** Settings that a copy needs to run beside the original. */
  readonly copySettings?: Readonly<Record<string, string | number>>;
  /** The port of the manifest that serves the data, or a number on the host's network. */
  readonly web: string | number;
  /** The reason why a regular user cannot install it. */
  readonly forRoot?: RegExp;
  /** Replaces a text of the generated manifest. */
  readonly manifest?: readonly [from: string, to: string];
  /** Whether a container has all capabilities, which a test host may lack. */
  readonly isPrivileged?: boolean;
  /** Devices of the host that it needs. */
  readonly devices?: readonly string[];
  /** The setting that names a directory of the host, which belongs to the user 1000. */
  readonly mediaSetting?: string;
  /** What svc states if docker-compose 1.29 does not support the file. */
  readonly classicLimit?: RegExp;
  /** Whether it also lives with docker-compose 1.29 without `SVC_LONG=1`. */
  readonly livesClassic?: boolean;
  /** Networks that must exist before. */
  readonly networks?: readonly string[];
}

/** Without a handler, the kernel does not deliver a signal to the first process of a container. */
const untilStopped = "trap 'exit 0' TERM QUIT; wait";

/** Keeps an ID and a line per start in a directory, and serves the directory. */
export const serve = (port: number, directory: string, before = "true"): string =>
  JSON.stringify([
    ...["/bin/sh", "-c"],
    `${before}; d=${directory}; test -f $$d/born || cat /proc/sys/kernel/random/uuid > $$d/born; echo REVISION > $$d/revision; echo start >> $$d/starts; httpd -f -p ${port} -h $$d & ${untilStopped}`,
  ]);
export const idle = JSON.stringify(["/bin/sh", "-c", `sleep 86400 & ${untilStopped}`]);
export const image = "image: svc/stack:1";
export const healthy = (test: string): string =>
  `healthcheck: { test: ["CMD-SHELL", ${JSON.stringify(test)}], interval: 2s, timeout: 10s, retries: 60, start_period: 30s }`;
export const answers = (port: number): string => healthy(`wget -q -O - http://127.0.0.1:${port}/born`);

export const popularStacks: readonly PopularStack[] = [
  {
    id: "nextcloud",
    web: "app",
    livesClassic: true,
    files: { "db.env": "MYSQL_PASSWORD=secret\nMYSQL_DATABASE=nextcloud\nMYSQL_USER=nextcloud\n" },
    compose: `services:
  db: { ${image}, restart: always, command: ${serve(3306, "/var/lib/mysql")}, volumes: ["db:/var/lib/mysql:z"], env_file: [db.env] }
  redis: { ${image}, restart: always, command: ${idle} }
  app:
    ${image}
    restart: always
    ports: ["127.0.0.1:18180:80"]
    command: ${serve(80, "/var/www/html", "until wget -q -O - http://db:3306/born; do sleep 0.2; done; test $$MYSQL_DATABASE = nextcloud || exit 9")}
    volumes: ["nextcloud:/var/www/html:z"]
    environment: [MYSQL_HOST=db, REDIS_HOST=redis]
    env_file: [db.env]
    depends_on: [db, redis]
  cron: { ${image}, restart: always, volumes: ["nextcloud:/var/www/html:z"], entrypoint: ${idle}, depends_on: [db, redis] }
volumes:
  db:
  nextcloud:
`,
  },
  {
    id: "immich",
    web: "immich-server",
    classicLimit: /too old for "name" at the top/,
    files: {
      ".env":
        "UPLOAD_LOCATION=./library\nDB_DATA_LOCATION=./postgres\nIMMICH_VERSION=1\nDB_PASSWORD=postgres\nDB_USERNAME=postgres\nDB_DATABASE_NAME=immich\n",
    },
    compose: `name: immich
services:
  immich-server:
    container_name: immich_server
    image: svc/stack:\${IMMICH_VERSION:-release}
    command: ${serve(2283, "/data", "test $$DB_PASSWORD = postgres || exit 9")}
    volumes: ["\${UPLOAD_LOCATION}:/data", "/etc/localtime:/etc/localtime:ro"]
    env_file: [.env]
    ports: ["2283:2283"]
    depends_on: [redis, database]
    restart: always
    ${answers(2283)}
  immich-machine-learning:
    container_name: immich_machine_learning
    image: svc/stack:\${IMMICH_VERSION:-release}
    command: ${idle}
    volumes: ["model-cache:/cache"]
    env_file: [.env]
    restart: always
    healthcheck: { disable: false }
  redis: { container_name: immich_redis, ${image}, command: ${idle}, ${healthy("true")}, restart: always }
  database:
    container_name: immich_postgres
    ${image}
    environment: { POSTGRES_PASSWORD: "\${DB_PASSWORD}", POSTGRES_USER: "\${DB_USERNAME}", POSTGRES_INITDB_ARGS: "--data-checksums" }
    volumes: ["\${DB_DATA_LOCATION}:/var/lib/postgresql/data"]
    shm_size: 128mb
    command: ${serve(5432, "/var/lib/postgresql/data")}
    restart: always
volumes:
  model-cache:
`,
  },
  {
    id: "paperless",
    web: "webserver",
    files: {
      "docker-compose.env": "PAPERLESS_URL=https://paperless.example.org\n#PAPERLESS_OCR_LANGUAGES=tur ces\n",
    },
    compose: `services:
  broker: { ${image}, restart: unless-stopped, command: ${idle}, volumes: ["redisdata:/data"] }
  db:
    ${image}
    restart: unless-stopped
    volumes: ["pgdata:/var/lib/postgresql"]
    environment: { POSTGRES_DB: paperless, POSTGRES_USER: paperless, POSTGRES_PASSWORD: paperless }
    command: ${serve(5432, "/var/lib/postgresql")}
    ${healthy('test -n "$$POSTGRES_USER"')}
  webserver:
    ${image}
    restart: unless-stopped
    depends_on:
      db: { condition: service_healthy }
      broker: { condition: service_started }
      gotenberg: { condition: service_started }
    ports: ["8000:8000"]
    volumes:
      - data:/usr/src/paperless/data
      - media:/usr/src/paperless/media
      - ./export:/usr/src/paperless/export
      - ./consume:/usr/src/paperless/consume
    env_file: docker-compose.env
    environment: { PAPERLESS_REDIS: "redis://broker:6379", PAPERLESS_DBHOST: db, PAPERLESS_TIKA_ENABLED: 1 }
    command: ${serve(8000, "/usr/src/paperless/data", "touch /usr/src/paperless/consume/seen /usr/src/paperless/export/seen || exit 9")}
    ${answers(8000)}
  gotenberg: { ${image}, restart: unless-stopped, command: ${idle} }
volumes: { data: , media: , pgdata: , redisdata: }
`,
  },
  {
    id: "gitea",
    web: "server",
    settings: { db_pass: "a secret $1" },
    userSettings: { server_22_port: 2222 },
    compose: `networks:
  gitea: { external: false }
services:
  server:
    ${image}
    container_name: gitea
    environment: [USER_UID=1000, USER_GID=1000, "GITEA__database__HOST=db:5432", "GITEA__database__PASSWD=\${DB_PASS:?set it}"]
    restart: always
    networks: [gitea]
    volumes: ["./gitea:/data", "/etc/timezone:/etc/timezone:ro", "/etc/localtime:/etc/localtime:ro"]
    ports: ["3000:3000", "222:22"]
    depends_on: [db]
    command: ${serve(3000, "/data", "test \"$$GITEA__database__PASSWD\" = 'a secret $$1' || exit 9")}
  db:
    ${image}
    restart: always
    environment: ["POSTGRES_PASSWORD=\${DB_PASS:?set it}"]
    networks: [gitea]
    volumes: ["./postgres:/var/lib/postgresql/data"]
    command: ${serve(5432, "/var/lib/postgresql/data")}
`,
  },
  {
    id: "homeassistant",
    web: 18_123,
    isPrivileged: true,
    forRoot: /privileged/,
    files: { "mosquitto/config/mosquitto.conf": "listener 1883\n" },
    compose: `services:
  homeassistant:
    container_name: homeassistant
    ${image}
    volumes: ["./config:/config", "/etc/localtime:/etc/localtime:ro"]
    restart: unless-stopped
    stop_grace_period: 3s
    privileged: true
    network_mode: host
    environment: { TZ: Europe/Amsterdam }
    command: ${serve(18_123, "/config")}
  zigbee2mqtt:
    ${image}
    devices: ["/dev/null:/dev/ttyACM0"]
    group_add: ["20"]
    user: "1000:1000"
    command: ${JSON.stringify(["/bin/sh", "-c", `test -c /dev/ttyACM0 || exit 9; sleep 86400 & ${untilStopped}`])}
  mosquitto:
    ${image}
    init: true
    user: "1883:1883"
    ports: ["18883:1883", "19001:9001/udp"]
    volumes: ["./mosquitto/config:/mosquitto/config:ro"]
    command: ${JSON.stringify(["/bin/sh", "-c", `grep listener /mosquitto/config/mosquitto.conf || exit 9; sleep 86400 & ${untilStopped}`])}
`,
  },
  {
    id: "traefik",
    web: "reverse-proxy",
    forRoot: /engine socket|docker\.sock|engine_socket/,
    networks: ["proxy"],
    // The socket of a test's engine has another path.
    manifest: ["permissions: [", "permissions: [engine_socket, "],
    files: { "acme.json": "" },
    compose: `services:
  reverse-proxy:
    ${image}
    command: ${serve(80, "/data", "test -S /var/run/docker.sock || exit 9")}
    ports: ["18080:80", "18081:8080"]
    volumes: ["ENGINE_SOCKET:/var/run/docker.sock:ro", "./acme.json:/acme.json", "state:/data"]
    networks: [proxy]
    labels: ["traefik.enable=true", "traefik.http.routers.api.rule=Host(\`traefik.example.org\`)"]
    security_opt: ["no-new-privileges:true"]
  whoami:
    ${image}
    command: ${idle}
    networks: [proxy]
    labels: { traefik.http.routers.whoami.rule: "Host(\`whoami.docker.localhost\`) && PathPrefix(\`/x\`)", com.example.empty: "" }
networks:
  proxy: { external: true }
volumes: { state: {} }
`,
  },
  {
    id: "pihole",
    web: "pihole-80",
    userSettings: { pihole_port: 5353, pihole_67_port: 6767 },
    forRoot: /capabilit|SYS_TIME/i,
    compose: `services:
  pihole:
    container_name: pihole
    ${image}
    ports: ["53:53/tcp", "53:53/udp", "67:67/udp", "18280:80/tcp"]
    environment: { TZ: America/Chicago, FTLCONF_webserver_api_password: correct horse battery staple, FTLCONF_dns_listeningMode: ALL }
    volumes: ["./etc-pihole:/etc/pihole"]
    cap_add: [NET_ADMIN, SYS_TIME, SYS_NICE]
    dns: [127.0.0.1, 1.1.1.1]
    hostname: pi.hole
    restart: unless-stopped
    command: ${serve(80, "/etc/pihole", "test $$(hostname) = pi.hole || exit 9")}
`,
  },
  {
    id: "vaultwarden",
    web: "caddy",
    settings: { domain: "vault.example.org" },
    userSettings: { caddy_port: 18_780, caddy_443_port: 18_743 },
    files: { Caddyfile: "{$DOMAIN} { reverse_proxy vaultwarden:80 }\n" },
    compose: `services:
  vaultwarden:
    ${image}
    container_name: vaultwarden
    restart: always
    environment: { DOMAIN: "https://\${DOMAIN:?the host name}" }
    command: ${serve(80, "/data")}
    volumes: ["./vw-data:/data"]
    ${answers(80)}
  caddy:
    ${image}
    container_name: caddy
    restart: always
    ports: ["80:80", "443:443", "443:443/udp"]
    volumes: ["./Caddyfile:/etc/caddy/Caddyfile:ro", "./caddy-config:/config", "./caddy-data:/data"]
    environment: { DOMAIN: "\${DOMAIN:?the host name}" }
    command: ${serve(80, "/data", "grep -q reverse_proxy /etc/caddy/Caddyfile || exit 9")}
    depends_on: { vaultwarden: { condition: service_healthy } }
`,
  },
  {
    id: "wordpress",
    web: "wordpress",
    files: { ".env": 'WP_PW="p@ss w0rd" # quoted\n' },
    compose: `version: "3.8"
services:
  wordpress:
    ${image}
    restart: always
    ports: ["18480:80"]
    environment: &wpenv
      WORDPRESS_DB_HOST: db
      WORDPRESS_DB_PASSWORD: \${WP_PW}
      WORDPRESS_CONFIG_EXTRA: |
        define('WP_HOME', 'https://x.example.org');
        $$_SERVER['HTTPS'] = 'on';
    volumes:
      - wordpress:/var/www/html
      - { type: tmpfs, target: /tmp/cache, tmpfs: { size: 1048576 } }
    tmpfs: ["/run:size=1m,mode=1777"]
    ulimits: { nproc: 512, nofile: { soft: 1024, hard: 2048 } }
    sysctls: ["net.ipv4.ip_unprivileged_port_start=0"]
    command: ${serve(80, "/var/www/html", 'test "$$WORDPRESS_DB_PASSWORD" = "p@ss w0rd" || exit 9')}
    stop_grace_period: 1m30s
    stop_signal: SIGQUIT
  wpcli: { ${image}, environment: *wpenv, volumes_from: ["wordpress:ro"], profiles: [cli], command: ${idle} }
  db:
    ${image}
    command: ${serve(3306, "/var/lib/mysql")}
    environment: { MYSQL_RANDOM_ROOT_PASSWORD: "1", MYSQL_PASSWORD: "\${WP_PW}" }
    volumes: ["db:/var/lib/mysql"]
volumes: { wordpress: , db: }
`,
  },
  {
    id: "jellyfin",
    web: 18_096,
    devices: ["/dev/dri/renderD128"],
    mediaSetting: "media",
    forRoot: /network/,
    classicLimit: /'create_host_path'; docker-compose 1\.29 does not support it/,
    compose: `services:
  jellyfin:
    ${image}
    container_name: jellyfin
    user: \${PUID:-1000}:\${PGID:-1000}
    group_add: ["\${RENDER_GID:-109}"]
    devices: ["/dev/dri:/dev/dri"]
    network_mode: host
    volumes:
      - ./config:/config
      - type: bind
        source: \${MEDIA:-/srv/media}
        target: /media
        read_only: true
      - { type: bind, source: ./fonts, target: /fonts, bind: { create_host_path: true } }
    extra_hosts: ["host.docker.internal:host-gateway"]
    command: ${serve(18_096, "/config", "test -c /dev/dri/renderD128 -a $$(id -u) = 1000 -a -f /media/film || exit 8; touch /fonts/x || exit 9")}
    restart: unless-stopped
`,
  },
  {
    id: "monitoring",
    web: "grafana",
    files: {
      "prometheus/prometheus.yml": "scrape_configs: []\n",
      "loki/config.yaml": "auth_enabled: false\n",
      "grafana/provisioning/datasources/all.yaml": "apiVersion: 1\n",
    },
    compose: `x-logging: &logging { driver: json-file, options: { max-size: 5m } }
services:
  prometheus:
    ${image}
    logging: *logging
    command: ${serve(9090, "/prometheus", "test -f /etc/prometheus/prometheus.yml || exit 9")}
    volumes: ["./prometheus:/etc/prometheus:ro", "prometheus_data:/prometheus"]
    ports: ["9090:9090"]
    restart: unless-stopped
  loki:
    ${image}
    logging: *logging
    command: ${serve(3100, "/loki", "test -f /etc/loki/local-config.yaml || exit 9")}
    volumes: ["./loki/config.yaml:/etc/loki/local-config.yaml:ro", "loki_data:/loki"]
    expose: ["3100"]
    restart: unless-stopped
  grafana:
    ${image}
    logging: *logging
    environment: { GF_SECURITY_ADMIN_PASSWORD: "\${GF_PASSWORD:-admin}", GF_PATHS_PROVISIONING: /etc/grafana/provisioning }
    command: ${serve(3000, "/var/lib/grafana", "ls /etc/grafana/provisioning/datasources/all.yaml || exit 9")}
    volumes: ["./grafana/provisioning:/etc/grafana/provisioning:ro", "grafana_data:/var/lib/grafana"]
    ports: [{ target: 3000, published: "3000", protocol: tcp, mode: host }]
    depends_on: [prometheus, loki]
    restart: unless-stopped
    ${answers(3000)}
volumes: { prometheus_data: {}, loki_data: {}, grafana_data: {} }
`,
  },
  {
    id: "mastodon",
    web: "web",
    files: { ".env.production": "LOCAL_DOMAIN=example.org\nSECRET_KEY_BASE=a$b\n" },
    compose: `services:
  db:
    restart: always
    ${image}
    shm_size: 256mb
    networks: [internal_network]
    ${healthy("test -f /var/lib/postgresql/data/born")}
    volumes: ["./postgres14:/var/lib/postgresql/data"]
    environment: ["POSTGRES_HOST_AUTH_METHOD=trust"]
    command: ${serve(5432, "/var/lib/postgresql/data")}
  redis: { restart: always, ${image}, networks: [internal_network], ${healthy("true")}, volumes: ["./redis:/data"], command: ${idle} }
  web:
    ${image}
    restart: always
    env_file: .env.production
    command: ${serve(3000, "/mastodon/public/system", "wget -q -O - http://db:5432/born || exit 9")}
    networks: [external_network, internal_network]
    ${answers(3000)}
    ports: ["127.0.0.1:3000:3000"]
    depends_on: [db, redis]
    volumes: ["./public/system:/mastodon/public/system"]
  streaming:
    ${image}
    restart: always
    env_file: .env.production
    command: ${idle}
    networks: [external_network, internal_network]
    ports: ["127.0.0.1:4000:4000"]
    depends_on: [db, redis]
  sidekiq:
    ${image}
    restart: always
    env_file: .env.production
    command: ${idle}
    depends_on: [db, redis]
    networks: [external_network, internal_network]
    volumes: ["./public/system:/mastodon/public/system"]
networks:
  external_network:
  internal_network: { internal: true }
`,
  },
  {
    id: "authentik",
    web: "server",
    files: { ".env": "PG_PASS=pass\nAUTHENTIK_SECRET_KEY=key\n" },
    compose: `services:
  postgresql:
    ${image}
    restart: unless-stopped
    ${healthy("test -d /var/lib/postgresql/data && test $${POSTGRES_USER} = authentik")}
    volumes: ["database:/var/lib/postgresql/data"]
    environment: { POSTGRES_PASSWORD: "\${PG_PASS:?database password required}", POSTGRES_USER: "\${PG_USER:-authentik}", POSTGRES_DB: "\${PG_DB:-authentik}" }
    env_file: [.env]
    command: ${idle}
  redis: { ${image}, command: ${idle}, restart: unless-stopped, volumes: ["redis:/data"] }
  server: &authentik
    image: \${AUTHENTIK_IMAGE:-svc/stack}:\${AUTHENTIK_TAG:-1}
    restart: unless-stopped
    command: ${serve(9000, "/media", "test $$AUTHENTIK_SECRET_KEY = key || exit 9")}
    environment: { AUTHENTIK_SECRET_KEY: "\${AUTHENTIK_SECRET_KEY:?secret key required}", AUTHENTIK_REDIS__HOST: redis }
    volumes: ["./media:/media", "./custom-templates:/templates"]
    env_file: [.env]
    ports: ["\${COMPOSE_PORT_HTTP:-9000}:9000", "\${COMPOSE_PORT_HTTPS:-9443}:9443"]
    depends_on: { postgresql: { condition: service_healthy }, redis: { condition: service_started } }
  worker: { <<: *authentik, command: ${idle}, ports: [], volumes: ["./media:/media", "./certs:/certs"] }
volumes: { database: { driver: local }, redis: { driver: local } }
`,
  },
  {
    id: "n8n",
    web: "n8n",
    files: {
      ".env": "POSTGRES_USER=changeUser\nPOSTGRES_PASSWORD=changePassword\nPOSTGRES_DB=n8n\n",
      "init-data.sh": "#!/bin/sh\necho initialized\n",
    },
    compose: `volumes:
  db_storage:
  n8n_storage:
services:
  postgres:
    ${image}
    restart: always
    environment: [POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB]
    command: ${serve(5432, "/var/lib/postgresql/data", "sh /docker-entrypoint-initdb.d/init-data.sh")}
    volumes: ["db_storage:/var/lib/postgresql/data", "./init-data.sh:/docker-entrypoint-initdb.d/init-data.sh"]
    ${healthy("test -f /var/lib/postgresql/data/born")}
  n8n:
    ${image}
    restart: always
    environment: [DB_TYPE=postgresdb, "DB_POSTGRESDB_USER=\${POSTGRES_USER}"]
    command: ${serve(5678, "/home/node/.n8n", "test $$DB_POSTGRESDB_USER = changeUser || exit 9")}
    ports: ["5678:5678"]
    links: [postgres]
    volumes: ["n8n_storage:/home/node/.n8n"]
    depends_on: { postgres: { condition: service_healthy } }
`,
  },
];
