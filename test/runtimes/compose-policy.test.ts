/** What a compose file may ask of the host for whom (decisions 20, threats 32-34): every way to say it, read from what compose resolves it to. */
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import { stringify } from "yaml";
import { SvcError } from "../../src/errors.ts";
import type { JsonObject } from "../../src/lib/json.ts";
import { YamlThread } from "../../src/packages/yaml-thread.ts";
import {
  labelled,
  printDocument,
  readResolved,
  runnableProject,
} from "../../src/runtimes/compose/compose-document.ts";
import { dependencyDepths } from "../../src/runtimes/compose/compose-project.ts";
import { checkComposeSources, type YamlReader } from "../../src/runtimes/compose/compose-sources.ts";
import { projectClaims } from "../../src/runtimes/compose/project-claims.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { canReadYaml } from "../support/python-yaml.ts";
import { programs } from "../support/programs.ts";
import { nobody, policyDirectory, type Permission } from "./support/policy-app.ts";

const rootTest = isRoot ? test : test.skip;
const place = await policyDirectory();
test.after.always(() => place[Symbol.asyncDispose]());
const thread = new YamlThread({ threadUrl: programs.settingsThread });
test.after.always(() => thread[Symbol.dispose]());
const readYaml: YamlReader = (text, bounds) => thread.read(text, bounds, 0);

const owner = `${nobody}:${nobody}`;

async function runnable(document: JsonObject, ownerUid: number): Promise<JsonObject> {
  const resolved = await readResolved(printDocument(document), "compose.yaml", readYaml);
  return runnableProject(resolved, {
    file: "compose.yaml",
    isClassic: false,
    profiles: ["chosen"],
    restart: { policy: "never", delayMs: 0, maxDelayMs: 0, maxAttempts: 0, resetAfterMs: 0 },
    stopGraceMs: 10_000,
    owner: ownerUid === 0 ? undefined : owner,
    absent: new Set(["/etc/timezone"]),
    builtTag: (service) => `svc.local/web:${service}`,
    withTag: (image) => image,
  }).document;
}

async function verdict(
  document: JsonObject,
  ownerUid: number,
  permissions: Permission[] = [],
): Promise<string> {
  const claims = projectClaims(await runnable(document, ownerUid), "svc-web");
  return place.verdict(claims, ownerUid, permissions);
}

const service = (more: JsonObject, rest: JsonObject = {}): JsonObject => ({
  services: { web: { image: "svc/web:1", ...more }, db: { image: "svc/db:1" } },
  ...rest,
});
const volume = (more: JsonObject): JsonObject =>
  service({ volumes: ["data:/data"] }, { volumes: { data: more } });
const network = (more: JsonObject): JsonObject => service({ networks: ["lan"] }, { networks: { lan: more } });

const refused: [name: string, permission: Permission, document: JsonObject][] = [
  ["privileged", "privileged", service({ privileged: true })],
  ["privileged as text", "privileged", service({ privileged: "true" })],
  ["host network", "host_network", service({ network_mode: "host" })],
  ["another container's network", "host_network", service({ network_mode: "container:other" })],
  ["a stranger service's network", "host_network", service({ network_mode: "service:stranger" })],
  ["host pids", "host_pid", service({ pid: "host" })],
  ["another container's pids", "host_pid", service({ pid: "container:other" })],
  ["host ipc", "host_ipc", service({ ipc: "host" })],
  ["another container's ipc", "host_ipc", service({ ipc: "container:other" })],
  ["host name of the host", "privileged", service({ uts: "host" })],
  ["no user namespace", "privileged", service({ userns_mode: "host" })],
  ["control groups of the host", "privileged", service({ cgroup: "host" })],
  ["another cgroup parent", "privileged", service({ cgroup_parent: "system.slice" })],
  ["a device", "devices", service({ devices: ["/dev/sda:/dev/sda"] })],
  ["a device as an object", "devices", service({ devices: [{ source: "/dev/sda", target: "/dev/sda" }] })],
  ["a device rule", "devices", service({ device_cgroup_rules: ["a *:* rwm"] })],
  ["all GPUs", "gpu", service({ gpus: "all" })],
  ["a graphics processor", "gpu", service({ devices: ["/dev/dri:/dev/dri"] })],
  [
    "a graphics processor as an object",
    "gpu",
    service({ devices: [{ source: "/dev/dri/card0", target: "/x" }] }),
  ],
  ["a disk beside the graphics", "devices", service({ devices: ["/dev/dri/../sda:/dev/dri/card0"] })],
  [
    "reserved graphics beside others",
    "devices",
    service({
      deploy: {
        resources: { reservations: { devices: [{ capabilities: ["gpu"] }, { capabilities: ["tpu"] }] } },
      },
    }),
  ],
  [
    "reserved graphics processors",
    "gpu",
    service({ deploy: { resources: { reservations: { devices: [{ capabilities: ["gpu"] }] } } } }),
  ],
  ["a capability", "capabilities", service({ cap_add: ["SYS_ADMIN"] })],
  ["all capabilities", "capabilities", service({ cap_add: ["ALL"] })],
  ["no AppArmor", "privileged", service({ security_opt: ["apparmor:unconfined"] })],
  ["no seccomp", "privileged", service({ security_opt: ["seccomp=unconfined"] })],
  ["its own seccomp profile", "privileged", service({ security_opt: ["seccomp:./profile.json"] })],
  ["no SELinux", "privileged", service({ security_opt: ["label:disable"] })],
  ["the kernel's paths", "privileged", service({ security_opt: ["systempaths=unconfined"] })],
  ["new privileges", "privileged", service({ security_opt: ["no-new-privileges:false"] })],
  ["kernel parameters", "privileged", service({ sysctls: { "net.core.somaxconn": 1024 } })],
  ["kernel parameters as a list", "privileged", service({ sysctls: ["net.core.somaxconn=1024"] })],
  ["another runtime", "privileged", service({ runtime: "sysbox" })],
  ["a group of the image", "privileged", service({ group_add: ["docker"] })],
  ["a group of the host", "groups", service({ group_add: [44] })],
  ["the OOM killer off", "privileged", service({ oom_kill_disable: true })],
  ["a better OOM score", "privileged", service({ oom_score_adj: -1000 })],
  [
    "limits on devices of the host",
    "privileged",
    service({ blkio_config: { device_read_bps: [{ path: "/dev/sda" }] } }),
  ],
  ["storage options", "privileged", service({ storage_opt: { size: "100G" } })],
  ["a hardware address", "privileged", service({ mac_address: "02:42:ac:11:00:02" })],
  ["commands after the start", "privileged", service({ post_start: [{ command: "id", privileged: true }] })],
  ["a program of the host", "privileged", service({ provider: { type: "sh" } })],
  ["a key of tomorrow", "privileged", service({ host_access: true })],
  ["a part of tomorrow", "privileged", service({}, { hosts: { a: {} } })],
  ["models", "privileged", service({}, { models: { a: { model: "x" } } })],
  ["the log of the host", "privileged", service({ logging: { driver: "journald" } })],
  ["svc's own labels", "privileged", service({ labels: { "svc.app": "other" } })],
  ["compose's own labels", "privileged", service({ labels: ["com.docker.compose.project=svc-other"] })],
  ["the engine by a key", "engine_socket", service({ use_api_socket: true })],
  ["a link to another's container", "host_network", service({ external_links: ["other:db"] })],
  ["another container's volumes", "host_mounts", service({ volumes_from: ["container:other"] })],
  ["another service's volumes", "host_mounts", service({ volumes_from: ["db:ro"] })],
  ["another's volume", "host_mounts", volume({ external: true })],
  ["another's volume by the old key", "host_mounts", volume({ external: { name: "other_data" } })],
  ["another's volume by its name", "host_mounts", volume({ name: "svc-other_data" })],
  [
    "a volume that is a bind",
    "host_mounts",
    volume({ driver_opts: { type: "none", o: "bind", device: "/" } }),
  ],
  ["a volume from the network", "host_mounts", volume({ driver: "local", driver_opts: { type: "nfs" } })],
  ["a volume driver", "host_mounts", volume({ driver: "rexray" })],
  ["another's network", "networks", network({ external: true })],
  ["another's network by the old key", "networks", network({ external: { name: "proxy" } })],
  ["the host's network as another's", "host_network", network({ external: true, name: "host" })],
  ["another's network by its name", "host_network", network({ name: "bridge" })],
  ["the host's network as a driver", "host_network", network({ driver: "host" })],
  ["macvlan", "host_network", network({ driver: "macvlan", driver_opts: { parent: "eth0" } })],
  [
    "a bridge of the host",
    "host_network",
    network({ driver_opts: { "com.docker.network.bridge.name": "br0" } }),
  ],
  ["addresses of the host's", "host_network", network({ ipam: { config: [{ subnet: "10.0.0.0/8" }] } })],
  [
    "options of a network in a service",
    "host_network",
    service({ networks: { default: { driver_opts: { a: "b" } } } }),
  ],
  ["a secret of the host", "host_mounts", service({}, { secrets: { a: { file: "/etc/shadow" } } })],
  ["a config of the host", "host_mounts", service({}, { configs: { a: { file: "/etc/passwd" } } })],
  ["another's secret", "host_mounts", service({}, { secrets: { a: { external: true } } })],
  [
    "a secret of the daemon's environment",
    "host_mounts",
    service({}, { secrets: { a: { environment: "HOME" } } }),
  ],
  ["/etc", "host_mounts", service({ volumes: ["/etc:/x"] })],
  ["/etc to read", "host_mounts", service({ volumes: ["/etc:/x:ro"] })],
  [
    "/etc as an object",
    "host_mounts",
    service({ volumes: [{ type: "bind", source: "/etc", target: "/x" }] }),
  ],
  [
    "/etc in the place of a volume",
    "host_mounts",
    service({ volumes: [{ type: "volume", source: "/etc", target: "/x" }] }),
  ],
  ["/etc behind the app's directory", "host_mounts", service({ volumes: [`${place.dir}/../../../etc:/x`] })],
  ["a directory with the same beginning", "host_mounts", service({ volumes: [`${place.dir}-evil:/x`] })],
  [
    "a mount of a kind of tomorrow",
    "host_mounts",
    service({ volumes: [{ type: "cluster", source: "a", target: "/x" }] }),
  ],
  [
    "a mount of an image",
    "host_mounts",
    service({ volumes: [{ type: "image", source: "a", target: "/x" }] }),
  ],
  [
    "a mount with a key of tomorrow",
    "host_mounts",
    service({ volumes: [{ type: "tmpfs", target: "/x", host: "/" }] }),
  ],
  ["slave mounts", "host_mounts", service({ volumes: [`${place.dir}/data:/x:rslave`] })],
  [
    "shared mounts",
    "host_mounts",
    service({
      volumes: [{ type: "bind", source: `${place.dir}/data`, target: "/x", bind: { propagation: "shared" } }],
    }),
  ],
  [
    "the engine's socket",
    "engine_socket",
    service({ volumes: ["/var/run/docker.sock:/var/run/docker.sock"] }),
  ],
  ["the engine's socket with dots", "engine_socket", service({ volumes: ["/run//x/../docker.sock:/s:ro"] })],
  ["the directory of the engine's socket", "engine_socket", service({ volumes: ["/run:/x:ro"] })],
  ["a home that nobody resolved", "engine_socket", service({ volumes: ["~/x:/x"] })],
  ["everything", "engine_socket", service({ volumes: ["/:/host:ro"] })],
];

for (const [name, permission, document] of refused) {
  rootTest(`${name}: not for others, for root with ${permission}${needsRoot}`, async (t) => {
    t.regex(await verdict(document, nobody), /which only root's own apps may/);
    t.regex(await verdict(document, 0), new RegExp(`add "${permission}" to the manifest's permissions`));
    t.is(await verdict(document, 0, [permission]), "allowed");
  });
}

for (const path of ["repo/etc", "volumes/out", "repo/etc/cron.d", "repo/behind/data"]) {
  rootTest(`${path}, a link or behind one, is mounted for nobody${needsRoot}`, async (t) => {
    const document = service({ volumes: [`${join(place.dir, path)}:/x`] });
    for (const uid of [nobody, 0]) {
      t.regex(await verdict(document, uid, ["host_mounts"]), /is to be mounted and is/);
    }
  });
}

const allowed: [name: string, document: JsonObject][] = [
  ["two plain services", service({})],
  ["an hour to stop", service({ stop_grace_period: "59m60s" })],
  ["a moment to stop", service({ stop_grace_period: "1m0.5s" })],
  [
    "what belongs to the app",
    service({ volumes: [`${place.dir}/data:/x`, `${place.dir}/repo/app.conf:/c:ro,z`] }),
  ],
  ["volumes of the engine", volume({ name: "svc-web_data", driver: "local", driver_opts: {} })],
  ["a volume without a name", service({ volumes: ["/data", { type: "volume", target: "/x" }] })],
  ["memory as a file system", service({ volumes: [{ type: "tmpfs", target: "/x" }], tmpfs: ["/run"] })],
  ["networks of its own", network({ name: "svc-web_lan", driver: "bridge", internal: true, ipam: {} })],
  [
    "its own services' namespaces",
    service({ network_mode: "service:db", pid: "service:db", ipc: "service:db" }),
  ],
  [
    "limits",
    service({ mem_limit: "1g", deploy: { resources: { limits: { cpus: "1", memory: "1g", pids: 9 } } } }),
  ],
  [
    "a little of everything",
    service({
      ...{
        shm_size: "256m",
        tmpfs: ["/x:size=64m,mode=1777", "/y"],
        pids_limit: 200,
        cpu_shares: 512,
        scale: 2,
      },
      ulimits: { nofile: { soft: 65_536, hard: 65_536 }, nproc: 4096 },
    }),
  ],
  [
    "fewer capabilities",
    service({ cap_drop: ["ALL"], security_opt: ["no-new-privileges:true"], read_only: true }),
  ],
  ["a file of its own as a secret", service({}, { secrets: { a: { file: `${place.dir}/repo/app.conf` } } })],
  [
    "ports above",
    service({
      ports: [
        "8080:80",
        "6000-6100:6000-6100",
        "[::1]:8443:443",
        { published: "9000", target: 90 },
        70,
        "71/udp",
      ],
    }),
  ],
  [
    "services of profiles that are not chosen",
    { services: { a: { image: "a" }, b: { image: "b", privileged: true, profiles: ["debug"] } } },
  ],
];
for (const [name, document] of allowed) {
  rootTest(`${name}: for everybody${needsRoot}`, async (t) => {
    t.is(await verdict(document, nobody), "allowed");
    t.is(await verdict(document, 0), "allowed");
  });
}

const tooMuch: [name: string, document: JsonObject][] = [
  ["time to stop", service({ stop_grace_period: "24h0m0s" })],
  ["time to stop in minutes", service({ stop_grace_period: "61m" })],
  ["time to stop that nobody can read", service({ stop_grace_period: "1y" })],
  ["annotations", service({ annotations: { "run.oci.handler": "krun" } })],
  ["annotations as a list", service({ annotations: ["io.kubernetes.cri-o.Devices=/dev/sda"] })],
  ["shared memory", service({ shm_size: "64g" })],
  ["shared memory in bytes", service({ shm_size: "68719476736" })],
  ["shared memory as a number", service({ shm_size: 68_719_476_736 })],
  ["memory as a file system", service({ tmpfs: ["/x:mode=755,size=64g"] })],
  ["memory as a file system, said twice", service({ tmpfs: ["/x:size=1m,size=64g"] })],
  ["memory as one file system", service({ tmpfs: "/x:size=50%" })],
  [
    "memory as a volume",
    service({ volumes: [{ type: "tmpfs", target: "/x", tmpfs: { size: 68_719_476_736 } }] }),
  ],
  ["processes without end", service({ pids_limit: -1 })],
  ["many processes", service({ pids_limit: 4_000_000 })],
  ["more of the processors than others", service({ cpu_shares: 1_025 })],
  ["open files", service({ ulimits: { nofile: 1_073_741_816 } })],
  ["locked memory", service({ ulimits: { memlock: { soft: -1, hard: -1 } } })],
  ["copies", service({ scale: 1000 })],
  ["ports in a range", service({ ports: ["2000-60000:2000-60000"] })],
  ["ports in a range, wherever they are free", service({ ports: ["2000-60000"] })],
  ["ports in a range, as an object", service({ ports: [{ published: "2000-3000", target: 80 }] })],
  ["ports one by one", service({ ports: Array.from({ length: 600 }, (_, n) => `${2000 + n}:80`) })],
  [
    "services",
    { services: Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`s${n}`, { image: "a" }])) },
  ],
  ["deployed copies", service({ deploy: { replicas: 1000 } })],
  ["words that each list of containers has", service({ labels: { a: "a".repeat(300_000) } })],
  ["words of all copies", service({ command: ["a".repeat(10_000)], scale: 32 })],
];
for (const [name, document] of tooMuch) {
  rootTest(`too much of the host for others, not for root: ${name}${needsRoot}`, async (t) => {
    t.regex(await verdict(document, nobody), /which only root's own apps may/);
    t.is(await verdict(document, 0), "allowed");
  });
}

for (const port of [
  "80:80",
  "127.0.0.1:22:22/tcp",
  "[::1]:443:443",
  "1000-1010:1000-1010",
  { published: "25", target: 25 },
  { published: 53, target: 53 },
]) {
  rootTest(`port ${JSON.stringify(port)} is root's${needsRoot}`, async (t) => {
    t.regex(await verdict(service({ ports: [port] }), nobody), /ports below 1024/);
    t.is(await verdict(service({ ports: [port] }), 0), "allowed");
  });
}

rootTest(`a user's containers run as their owner, and gain no privileges${needsRoot}`, async (t) => {
  const writes = { volumes: [`${place.dir}/data:/x`] };
  const services = (await runnable(service(writes), nobody))["services"] as Record<string, JsonObject>;
  t.is(services["web"]?.["user"], owner);
  t.is(services["db"]?.["user"], owner);
  t.deepEqual(services["db"]?.["security_opt"], ["no-new-privileges:true"]);
  for (const user of ["root", "0", "1000:1000", `${nobody}`]) {
    t.regex(await verdict(service({ ...writes, user }), nobody), /it may only as its owner/);
    t.regex(await verdict(service({ user }), nobody), /it may only as its owner/);
  }
  t.is(await verdict(service({ ...writes, user: owner }), nobody), "allowed");
  t.is(await verdict(service({ ...writes, user: "root" }), 0), "allowed");
});

test("what is printed is read back as it was, whatever is in the environment", async (t) => {
  const document = { services: { web: { image: "a", command: ["$HOME", "$$", "${X:-y}", "a$$b"] } } };
  const printed = printDocument(document);
  t.false(/(^|[^$])(\$\$)*\$[^$]/.test(printed));
  t.deepEqual(await readResolved(printed, "compose.yaml", readYaml), document);
});

const escapes: [name: string, document: object, message: RegExp][] = [
  [
    "an include from the network",
    { include: ["https://example.org/c.yaml"] },
    /not a file of the package: put it there$/,
  ],
  ["an include by git", { include: ["git@example.org:a/b"] }, /not a file of the package: put it there$/],
  [
    "an include by OCI",
    { include: [{ path: "oci://example.org/c" }] },
    /not a file of the package: put it there$/,
  ],
  [
    "an include from above",
    { include: ["../../other/compose.yaml"] },
    /leads out of the package: put what it names inside$/,
  ],
  [
    "an include by its whole path",
    { include: [{ path: ["/etc/passwd"] }] },
    /leads out of the package: put what it names inside$/,
  ],
  [
    "an include that depends",
    { include: ["$X/compose.yaml"] },
    /must not depend on variables: write it out$/,
  ],
  [
    "an include behind a link",
    { include: ["etc/passwd"] },
    /lies behind, a link: put the file itself there$/,
  ],
  [
    "extends from above",
    { services: { a: { extends: { file: "../../a.yaml", service: "b" } } } },
    /leads out/,
  ],
  ["an environment from above", { services: { a: { env_file: ["../../.env"] } } }, /leads out/],
  ["an environment at home", { services: { a: { env_file: { path: "~/.aws/credentials" } } } }, /leads out/],
  ["an environment by its whole path", { services: { a: { env_file: "/etc/environment" } } }, /leads out/],
  ["a secret from above", { secrets: { a: { file: "../../key" } } }, /leads out/],
  [
    "a build from the network",
    { services: { a: { build: "https://example.org/a.git#main" } } },
    /not a file/,
  ],
  ["a build from above", { services: { a: { build: { context: "../.." } } } }, /leads out/],
];
for (const [name, document, message] of escapes) {
  rootTest(`${name} is refused before compose reads it${needsRoot}`, async (t) => {
    const text = stringify({ services: { web: { image: "a" } }, ...document });
    await writeFile(join(place.dir, "repo/compose.yaml"), text);
    const identity = await place.identity();
    const check = checkComposeSources(identity, place.dir, "repo", "compose.yaml", readYaml);
    t.regex((await t.throwsAsync(check)).message, message);
  });
}

const texts: [name: string, text: string, message: RegExp][] = [
  [
    "a merged environment from above",
    "x-a: &a {env_file: /etc/environment}\nservices: {web: {image: a, <<: *a}}",
    /leads out/,
  ],
  [
    "a bomb of aliases",
    `a: &a [x,x,x,x,x,x,x,x,x]\n${"b c d e f g h"
      .split(" ")
      .map((name, at) => `${name}: &${name} [${Array(9).fill(`*${"abcdefg"[at]!}`).join(",")}]`)
      .join("\n")}\nservices: {web: {image: a}}`,
    /values, aliases expanded/,
  ],
  ["no YAML", "services: [", /line 1/],
  ["a file of more than 512 KiB", `# ${"x".repeat(512 * 1024)}\nservices: {}`, /524288/],
  ["a file of more than 20,000 words", `a: [${"x,".repeat(10_000)}]`, /tokens|20000/],
];
for (const [name, text, message] of texts) {
  rootTest(`${name} is refused before compose reads it${needsRoot}`, async (t) => {
    await writeFile(join(place.dir, "repo/compose.yaml"), text);
    const identity = await place.identity();
    const error = await t.throwsAsync(
      checkComposeSources(identity, place.dir, "repo", "compose.yaml", readYaml),
    );
    t.true(error instanceof SvcError && error.code === "invalid_argument");
    t.regex(error.message, message);
  });
}

test("services that depend on others end before those", (t) => {
  const document = {
    services: {
      web: { depends_on: ["api", "cache"] },
      api: { depends_on: { db: { condition: "service_healthy" } } },
      db: {},
      cache: {},
      loop: { depends_on: ["loop"] },
    },
  };
  t.deepEqual(Object.fromEntries(dependencyDepths(document)), { web: 2, api: 1, db: 0, cache: 0, loop: 1 });
  const names = Array.from({ length: 60 }, (_, at) => `s${at}`);
  const dense = names.map((name, at) => [name, { depends_on: names.slice(0, at) }]);
  t.is(dependencyDepths({ services: Object.fromEntries(dense) as JsonObject }).get("s59"), 59);
});

const pythonTest = canReadYaml() ? test : test.skip;

pythonTest("compose reads the very texts that were checked, whatever is in them", (t) => {
  const odd = [
    "/a\u0085b",
    "/a \u2028 b",
    "/a\u2029b",
    "\ufeff/a",
    "/\u007f\u0090",
    "a\nb",
    "# a: b",
    "$A",
    "\u{1f600}",
  ];
  const texts = [...odd, ...fc.sample(fc.string({ unit: "binary" }), 300)];
  const program =
    "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.buffer.read().decode())))";
  const input = printDocument({ services: { a: { command: texts } } });
  const read = JSON.parse(execFileSync("python3", ["-c", program], { input, encoding: "utf8" })) as unknown;
  t.deepEqual(read, { services: { a: { command: texts.map((text) => text.replaceAll("$", "$$$$")) } } });
});

test("the engine restarts nothing of a project: what its file says is a label, for svc", (t) => {
  const services = { a: { image: "a", restart: "always" }, b: { image: "b", restart: "on-failure:3" } };
  t.like(labelled({ services }, { "svc.app": "x" }), {
    services: {
      a: { restart: "no", labels: { "svc.app": "x", "svc.restart": "always" } },
      b: { restart: "no", labels: { "svc.app": "x", "svc.restart": "on-failure:3" } },
    },
  });
});
