/** Self-hosted stacks that only root can install, because they use the host or run as other users. See `popular-stacks.ts`. */
import { answers, healthy, idle, image, serve, type PopularStack } from "./popular-stacks.ts";

/** The script of airflow's init service, which prepares directories for other services. */
const prepare =
  "mkdir -p /sources/logs /sources/dags; touch /sources/logs/prepared; chmod -R 777 /sources/logs";

export const rootStacks: readonly PopularStack[] = [
  {
    id: "airflow",
    web: "airflow-webserver",
    livesClassic: true,
    forRoot: /runs as "50000:0"|runs as "0:0"|must run as its owner/,
    files: { ".env": "AIRFLOW_UID=50000\n", "dags/hello.py": "pass\n" },
    compose: `x-airflow-common: &airflow-common
  image: \${AIRFLOW_IMAGE_NAME:-svc/stack:1}
  environment: &airflow-common-env
    AIRFLOW__CORE__EXECUTOR: CeleryExecutor
    AIRFLOW__CORE__FERNET_KEY: ''
    _PIP_ADDITIONAL_REQUIREMENTS: \${_PIP_ADDITIONAL_REQUIREMENTS:-}
  volumes:
    - \${AIRFLOW_PROJ_DIR:-.}/dags:/opt/airflow/dags
    - \${AIRFLOW_PROJ_DIR:-.}/logs:/opt/airflow/logs
  user: "\${AIRFLOW_UID:-50000}:0"
  depends_on: &airflow-common-depends-on
    redis: { condition: service_healthy }
    postgres: { condition: service_healthy }
services:
  postgres:
    ${image}
    environment: { POSTGRES_USER: airflow, POSTGRES_PASSWORD: airflow, POSTGRES_DB: airflow }
    volumes: ["postgres-db-volume:/var/lib/postgresql/data"]
    command: ${serve(5432, "/var/lib/postgresql/data")}
    ${answers(5432)}
    restart: always
  redis: { ${image}, expose: [6379], command: ${idle}, ${healthy("true")}, restart: always }
  airflow-webserver:
    <<: *airflow-common
    command: ${serve(8080, "/opt/airflow/logs", "test -f /opt/airflow/dags/hello.py -a -f /opt/airflow/logs/prepared || exit 9")}
    ports: ["8080:8080"]
    ${answers(8080)}
    restart: always
    depends_on:
      <<: *airflow-common-depends-on
      airflow-init: { condition: service_completed_successfully }
  airflow-init:
    <<: *airflow-common
    entrypoint: /bin/sh
    command:
      - -c
      - |
        if [[ -z "\${AIRFLOW_UID}" ]]; then echo "AIRFLOW_UID not set!"; fi
        ${prepare}
    environment:
      <<: *airflow-common-env
      _AIRFLOW_DB_MIGRATE: 'true'
    user: "0:0"
    volumes: ["\${AIRFLOW_PROJ_DIR:-.}:/sources"]
  flower:
    <<: *airflow-common
    command: celery flower
    profiles: [flower]
    ports: ["5555:5555"]
volumes:
  postgres-db-volume:
`,
  },
  {
    id: "elastic",
    web: "es01",
    forRoot: /memlock|runs as "0"/,
    files: {
      ".env":
        "ELASTIC_PASSWORD=changeme\nES_PORT=127.0.0.1:9200\nKIBANA_PORT=5601\nES_MEM_LIMIT=1073741824\n",
    },
    compose: `services:
  setup:
    ${image}
    user: "0"
    volumes: ["certs:/usr/share/elasticsearch/config/certs"]
    command: >
      /bin/sh -c '
        if [ x\${ELASTIC_PASSWORD} == x ]; then
          echo "Set the ELASTIC_PASSWORD environment variable in the .env file";
          exit 1;
        fi;
        echo "instances: $$(hostname)" > /usr/share/elasticsearch/config/certs/es01.crt;
        trap "exit 0" TERM; sleep 86400 & wait;
      '
    healthcheck:
      test: ["CMD-SHELL", "[ -f /usr/share/elasticsearch/config/certs/es01.crt ]"]
      interval: 2s
      timeout: 5s
      retries: 120
  es01:
    depends_on:
      setup: { condition: service_healthy }
    ${image}
    labels: { co.elastic.logs/module: elasticsearch }
    volumes: ["certs:/usr/share/elasticsearch/config/certs", "esdata01:/usr/share/elasticsearch/data"]
    ports: ["\${ES_PORT}:9200"]
    environment: [node.name=es01, cluster.name=docker-cluster, bootstrap.memory_lock=true, "ELASTIC_PASSWORD=\${ELASTIC_PASSWORD}"]
    mem_limit: \${ES_MEM_LIMIT}
    ulimits: { memlock: { soft: 65536, hard: 65536 } }
    command: ${serve(9200, "/usr/share/elasticsearch/data", "test -f /usr/share/elasticsearch/config/certs/es01.crt || exit 9")}
    ${answers(9200)}
  kibana:
    depends_on:
      es01: { condition: service_healthy }
    ${image}
    ports: ["\${KIBANA_PORT}:5601"]
    command: ${idle}
    mem_limit: \${ES_MEM_LIMIT}
volumes:
  certs: { driver: local }
  esdata01: { driver: local }
`,
  },
  {
    id: "frigate",
    web: "frigate-8971",
    forRoot: /sets the security option "label=disable"/,
    compose: `version: "3.9"
services:
  frigate:
    container_name: frigate
    restart: unless-stopped
    stop_grace_period: 30s
    ${image}
    shm_size: "512mb"
    security_opt: ["label=disable"]
    volumes:
      - /etc/localtime:/etc/localtime:ro
      - ./config:/config
      - type: bind
        source: ./storage
        target: /media/frigate
      - type: tmpfs
        target: /tmp/cache
        tmpfs: { size: 100000000 }
    ports: ["8554:8554", "8971:8971", "8555:8555/tcp", "8555:8555/udp"]
    environment: { FRIGATE_RTSP_PASSWORD: "password" }
    command: ${serve(8971, "/media/frigate", "touch /config/config.yml /tmp/cache/x || exit 9")}
    ${answers(8971)}
`,
  },
  {
    id: "mailcow",
    copySettings: { ipv4_network: "OWN_NETWORK_9" },
    manifest: ["permissions: [", "permissions: [engine_socket, "],
    web: "nginx-mailcow",
    classicLimit: /ports contains an invalid type; docker-compose 1\.29 does not support it/,
    forRoot: /labelled for SELinux|driver_opts|engine_socket|mounts/,
    files: {
      ".env":
        "MAILCOW_HOSTNAME=mail.example.org\nIPV4_NETWORK=OWN_NETWORK_8\nHTTP_PORT=18088\nHTTP_BIND=\nTZ=Europe/Berlin\n",
      "data/conf/unbound/unbound.conf": "server:\n",
    },
    compose: `services:
  unbound-mailcow:
    ${image}
    environment: ["TZ=\${TZ}", "SKIP_UNBOUND_HEALTHCHECK=\${SKIP_UNBOUND_HEALTHCHECK:-n}"]
    volumes: ["./data/conf/unbound/unbound.conf:/etc/unbound/unbound.conf:ro,Z"]
    restart: always
    tty: true
    command: ${idle}
    networks:
      mailcow-network: { ipv4_address: "\${IPV4_NETWORK:-172.22.1}.254", aliases: [unbound] }
  mysql-mailcow:
    ${image}
    depends_on: [unbound-mailcow]
    stop_grace_period: 45s
    volumes: ["mysql-vol-1:/var/lib/mysql/", "mysql-socket-vol-1:/var/run/mysqld/"]
    restart: always
    command: ${serve(3306, "/var/lib/mysql")}
    networks: { mailcow-network: { aliases: [mysql] } }
  nginx-mailcow:
    ${image}
    depends_on: [mysql-mailcow]
    dns: ["\${IPV4_NETWORK:-172.22.1}.254"]
    volumes: ["web-vol-1:/web:z", "mysql-socket-vol-1:/var/run/mysqld/:z"]
    tmpfs: [/tmp]
    ports: ["\${HTTP_BIND:-}:\${HTTP_PORT:-80}:80"]
    sysctls: [net.core.somaxconn=1024]
    restart: always
    command: ${serve(80, "/web", "wget -q -O - http://mysql:3306/born || exit 9; nslookup mysql || true")}
    ${answers(80)}
    networks: { mailcow-network: { aliases: [nginx] } }
  ofelia-mailcow:
    ${image}
    restart: always
    command: ${idle}
    labels: { ofelia.enabled: "true" }
    security_opt: ["label=disable"]
    volumes: ["ENGINE_SOCKET:/var/run/docker.sock:ro"]
    networks: { mailcow-network: { aliases: [ofelia] } }
networks:
  mailcow-network:
    driver: bridge
    ipam:
      driver: default
      config:
        - subnet: \${IPV4_NETWORK:-172.22.1}.0/24
volumes: { mysql-vol-1: , mysql-socket-vol-1: , web-vol-1: }
`,
  },
  {
    id: "gluetun",
    web: "gluetun-8080",
    devices: ["/dev/net/tun"],
    forRoot: /NET_ADMIN/,
    classicLimit: /'restart'; docker-compose 1\.29 does not support it/,
    compose: `---
services:
  gluetun:
    ${image}
    container_name: gluetun
    hostname: gluetun
    cap_add:
      - NET_ADMIN
    devices:
      - /dev/net/tun:/dev/net/tun
    ports:
      - 8888:8888/tcp # HTTP proxy
      - 8388:8388/tcp # Shadowsocks
      - 8388:8388/udp # Shadowsocks
      - 18083:8080 # qbittorrent
      - 6881:6881
      - 6881:6881/udp
    volumes:
      - ./gluetun:/gluetun
    environment:
      - VPN_SERVICE_PROVIDER=ivpn
      - VPN_TYPE=openvpn
      - OPENVPN_USER=
      - TZ=
      - UPDATER_PERIOD=
    command: ["/bin/sh","-c","test -c /dev/net/tun || exit 9; touch /gluetun/servers.json; sleep 86400 & trap 'exit 0' TERM; wait"]
    healthcheck: { test: "test -f /gluetun/servers.json", interval: 2s }
  qbittorrent:
    ${image}
    container_name: qbittorrent
    network_mode: "service:gluetun"
    depends_on:
      gluetun:
        condition: service_healthy
        restart: true
    environment: [PUID=1000, PGID=1000, UMASK=022, WEBUI_PORT=8080]
    volumes:
      - ./qbittorrent:/config
      - ./downloads:/downloads
    restart: unless-stopped
    command: ${serve(8080, "/config")}
`,
  },
];
