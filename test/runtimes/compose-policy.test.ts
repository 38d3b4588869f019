/** The host access that a compose file may request: every spelling, checked in compose's resolved output. */
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import fc from "fast-check";
import { stringify } from "yaml";
import { SvcError } from "../../src/errors.ts";
import type { JsonObject, JsonValue } from "../../src/lib/json.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { labelled, printDocument, readResolved } from "../../src/runtimes/compose/compose-document.ts";
import { dependencyDepths } from "../../src/runtimes/compose/document-services.ts";
import { checkComposeSources, type YamlReader } from "../../src/runtimes/compose/compose-sources.ts";
import { recordOf } from "../../src/runtimes/compose/compose-values.ts";
import { withInlineFiles, withVariables } from "../../src/runtimes/compose/inline-files.ts";
import { projectClaims } from "../../src/runtimes/compose/project-claims.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { canReadYaml } from "../support/python-yaml.ts";
import { programs } from "../support/programs.ts";
import {
  askingFiles,
  greedyFiles,
  network,
  rootsPorts,
  runnableDocument,
  service,
  volume,
} from "./support/compose-files.ts";
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
  return runnableDocument(resolved, ownerUid === 0 ? undefined : owner);
}

async function verdict(
  document: JsonObject,
  ownerUid: number,
  permissions: Permission[] = [],
): Promise<string> {
  const claims = projectClaims(await runnable(document, ownerUid), "svc-web");
  return place.verdict(claims, ownerUid, permissions);
}

for (const [name, permission, document] of askingFiles(place)) {
  rootTest(`${name}: denied to others, for root with ${permission}${needsRoot}`, async (t) => {
    t.regex(await verdict(document, nobody), /which only root's own apps may/);
    t.regex(await verdict(document, 0), new RegExp(`add "${permission}" to the manifest's permissions`));
    t.is(await verdict(document, 0, [permission]), "allowed");
  });
}

for (const path of ["repo/etc", "volumes/out", "repo/etc/cron.d", "repo/behind/data"]) {
  rootTest(`${path}, a link or behind one, is mounted for nobody${needsRoot}`, async (t) => {
    const document = service({ volumes: [`${join(place.dir, path)}:/x`] });
    for (const uid of [nobody, 0]) {
      t.regex(
        await verdict(document, uid, ["host_mounts"]),
        /the mount source .* (?:does not exist|or a parent of it is a symlink);/,
      );
    }
  });
}

const allowed: [name: string, document: JsonObject][] = [
  ["two plain services", service({})],
  ["an hour to stop", service({ stop_grace_period: "59m60s" })],
  ["a moment to stop", service({ stop_grace_period: "1m0.5s" })],
  [
    "what belongs to the app",
    service({ volumes: [`${place.dir}/data:/x`, `${place.dir}/repo/app.conf:/c:ro`] }),
  ],
  ["volumes of the engine", volume({ name: "svc-web_data", driver: "local", driver_opts: {} })],
  ["a volume without a name", service({ volumes: ["/data", { type: "volume", target: "/x" }] })],
  [
    "a volume of the engine, which the engine labels for SELinux",
    service({
      volumes: ["data:/x:z", { type: "volume", source: "data", target: "/y", bind: { selinux: "z" } }],
    }),
  ],
  ["memory as a file system", service({ volumes: [{ type: "tmpfs", target: "/x" }], tmpfs: ["/run"] })],
  ["networks of its own", network({ name: "svc-web_lan", driver: "bridge", internal: true, ipam: {} })],
  [
    "its own services' namespaces",
    service({ network_mode: "service:db", pid: "service:db", ipc: "service:db" }),
  ],
  [
    "kernel parameters of its own namespaces",
    service({
      sysctls: {
        ...{ "net.core.somaxconn": 1024, "net.ipv4.ip_forward": 1, "net.ipv4.tcp_keepalive_time": 60 },
        ...{ "net.ipv4.conf.all.src_valid_mark": 1, "net.ipv6.conf.all.disable_ipv6": 0 },
        ...{ "net.ipv4.ip_unprivileged_port_start": 0, "kernel.shmmax": 68_719_476_736 },
        ...{ "kernel.msgmnb": 65_536, "kernel.sem": "250 32000 100 128", "fs.mqueue.msg_max": 10 },
      },
    }),
  ],
  ["kernel parameters as a list", service({ sysctls: ["net.core.somaxconn=1024"] })],
  ["a worse OOM score", service({ oom_score_adj: 500 })],
  [
    "hardware addresses",
    service({
      mac_address: "02:42:ac:11:00:02",
      networks: { default: { mac_address: "02:42:ac:11:00:02" } },
    }),
  ],
  [
    "capabilities of the engine's default set",
    service({ cap_drop: ["ALL"], cap_add: ["CHOWN", "cap_kill"] }),
  ],
  [
    "volumes of its own services",
    {
      services: {
        web: { image: "a", volumes_from: ["api:ro"], configs: ["a"] },
        api: { image: "a", volumes_from: ["db"], volumes: ["/y"] },
        db: { image: "a", volumes: [`${place.dir}/data:/x`, "/y"] },
      },
    },
  ],
  [
    "commands after the start",
    service({
      user: owner,
      post_start: [
        { command: ["id"], user: owner },
        { command: "id", working_dir: "/" },
      ],
    }),
  ],
  [
    "a subnet of the pool",
    network({
      ipam: { config: [{ subnet: "10.201.7.0/24", gateway: "10.201.7.1", ip_range: "10.201.7.128/25" }] },
    }),
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
  [
    "configs and secrets inside of a file system in memory",
    service(
      {
        ...{ tmpfs: ["/run"], volumes: [{ type: "tmpfs", target: "/etc/app" }] },
        configs: [{ source: "c", target: "/etc/app/c" }],
        secrets: ["a"],
      },
      {
        configs: { c: { file: `${place.dir}/repo/app.conf` } },
        secrets: { a: { file: `${place.dir}/repo/app.conf` } },
      },
    ),
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
    "volumes up to the bound",
    service(
      { volumes: Array.from({ length: 64 }, (_, n) => `v${n}:/v${n}`) },
      { volumes: Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`v${n}`, null])) },
    ),
  ],
  ["exposed ports up to the bound", service({ expose: ["2000-2510", 80] })],
  [
    "services of profiles that are not chosen",
    { services: { a: { image: "a" }, b: { image: "b", privileged: true, profiles: ["debug"] } } },
  ],
];
for (const [name, document] of allowed) {
  rootTest(`${name}: allowed for everybody${needsRoot}`, async (t) => {
    t.is(await verdict(document, nobody), "allowed");
    t.is(await verdict(document, 0), "allowed");
  });
}

for (const subnet of ["10.202.0.0/24", "10.200.0.0/15", "192.168.1.0/24", "fd00:1::/64", ""]) {
  rootTest(`the private subnet "${subnet}" outside the pool is only for root${needsRoot}`, async (t) => {
    const document = network({ ipam: { config: [{ subnet, gateway: "10.202.0.1" }] } });
    t.regex(
      await verdict(document, nobody),
      /network "lan" sets the subnet ".*"; those of regular users are in 10\.201\.0\.0\/16/,
    );
    t.is(await verdict(document, 0), "allowed");
  });
}

rootTest(
  `a command after the start gets no variables from the environment of compose${needsRoot}`,
  async (t) => {
    const post_start = [{ command: "id", environment: { PATH: null, A: "1" } }];
    const { web } = recordOf((await runnable(service({ post_start }), nobody))["services"]);
    t.deepEqual(recordOf(web)["post_start"], [{ command: "id", environment: { A: "1" } }]);
  },
);

for (const [name, document] of greedyFiles(place)) {
  rootTest(`too much of the host for others, not for root: ${name}${needsRoot}`, async (t) => {
    t.regex(await verdict(document, nobody), /which only root's own apps may/);
    t.is(await verdict(document, 0), "allowed");
  });
}

for (const port of rootsPorts) {
  rootTest(`port ${JSON.stringify(port)} is only for root${needsRoot}`, async (t) => {
    t.regex(await verdict(service({ ports: [port] }), nobody), /ports below 1024/);
    t.is(await verdict(service({ ports: [port] }), 0), "allowed");
  });
}

rootTest(`configs and secrets of a user are invisible to other users${needsRoot}`, async (t) => {
  for (const kind of ["configs", "secrets"]) {
    for (const ids of [{ uid: "0" }, { gid: "0" }, { uid: "0", gid: "0" }, { uid: 1 }]) {
      const document = service({ [kind]: [{ source: "a", ...ids }] });
      t.regex(await verdict(document, nobody), /it must belong to the app's owner/);
      t.is(await verdict(document, 0), "allowed");
    }
    const own = { uid: `${nobody}`, gid: `${nobody}`, mode: "0755" };
    t.is(await verdict(service({ [kind]: [{ source: "a", ...own }] }), nobody), "allowed");
  }
});

rootTest(`options that a user's service does not set are limited${needsRoot}`, async (t) => {
  const more = {
    ...{ tmpfs: ["/a", "/b:mode=755"], healthcheck: { test: "true" }, logging: { driver: "json-file" } },
    volumes: [{ type: "tmpfs", target: "/c" }],
  };
  const web = recordOf(recordOf((await runnable(service(more), nobody))["services"])["web"]);
  t.deepEqual(web["tmpfs"], ["/a:size=268435456", "/b:mode=755,size=268435456"]);
  t.deepEqual(web["volumes"], [{ type: "tmpfs", target: "/c", tmpfs: { size: 268_435_456 } }]);
  t.deepEqual(web["healthcheck"], { test: "true", interval: "30s" });
  t.deepEqual(web["logging"], { driver: "json-file", options: { "max-size": "10m", "max-file": "5" } });
  const ofRoot = recordOf(recordOf((await runnable(service(more), 0))["services"])["web"]);
  t.like(ofRoot, { tmpfs: more.tmpfs, healthcheck: more.healthcheck, volumes: more.volumes });
  t.deepEqual(ofRoot["logging"], web["logging"]);
});

rootTest(`a user's service gets no variables from the environment of compose${needsRoot}`, async (t) => {
  const environmentOf = async (environment: JsonValue, uid: number) =>
    recordOf(recordOf((await runnable(service({ environment }), uid))["services"])["web"])["environment"];
  const named = { DOCKER_HOST: null, PATH: null, EMPTY: "", PORT: 80 };
  t.deepEqual(await environmentOf(named, nobody), { EMPTY: "", PORT: "80" });
  t.deepEqual(await environmentOf(["DOCKER_HOST", "EMPTY=", "A=b=c"], nobody), { EMPTY: "", A: "b=c" });
  t.deepEqual(await environmentOf(named, 0), named);
});

test("content becomes a file of the app's owner with the permission bits of its services", (t) => {
  const document = {
    services: { web: { configs: [{ source: "a", mode: "04750" }, "b"], secrets: ["s"] } },
    configs: { a: { content: "A" }, b: { content: "" }, c: { file: "/x" } },
    secrets: { s: { environment: "S" } },
  };
  const set = withVariables(document, { S: "text" }, "compose.yaml");
  const mine = withInlineFiles(set, { directory: "/app", isRoots: false });
  t.deepEqual(mine.files, [
    { path: "inline/configs-a", content: "A", mode: 0o750 },
    { path: "inline/configs-b", content: "", mode: 0o444 },
    { path: "inline/secrets-s", content: "text", mode: 0o444 },
  ]);
  t.like(mine.document, {
    configs: { a: { file: "/app/inline/configs-a" }, c: { file: "/x" } },
    secrets: { s: { file: "/app/inline/secrets-s" } },
  });
  const ofRoot = withInlineFiles(set, { directory: "/app", isRoots: true });
  t.deepEqual(ofRoot.document["configs"], document.configs);
  t.like(ofRoot.document["secrets"], { s: { file: "/app/inline/secrets-s" } });
  t.throws(() => withVariables(document, {}, "compose.yaml"), {
    message: /uses the variable S, which is not set/,
  });
});

rootTest(`a user's containers run as their owner and gain no privileges${needsRoot}`, async (t) => {
  const writes = { volumes: [`${place.dir}/data:/x`] };
  const services = (await runnable(service(writes), nobody))["services"] as Record<string, JsonObject>;
  t.is(services["web"]?.["user"], owner);
  t.is(services["db"]?.["user"], owner);
  t.deepEqual(services["db"]?.["security_opt"], ["no-new-privileges:true"]);
  for (const user of ["root", "0", "1000:1000", `${nobody}`]) {
    t.regex(await verdict(service({ ...writes, user }), nobody), /it must run as its owner/);
    t.regex(
      await verdict(service({ user }), nobody),
      /it must run as its owner; leave "user" out, or set it to "\d+:\d+"/,
    );
  }
  t.is(await verdict(service({ ...writes, user: owner }), nobody), "allowed");
  t.is(await verdict(service({ ...writes, user: "root" }), 0), "allowed");
});

test("printed documents are read back unchanged, whatever is in the environment", async (t) => {
  const document = { services: { web: { image: "a", command: ["$HOME", "$$", "${X:-y}", "a$$b"] } } };
  const printed = printDocument(document);
  t.false(/(^|[^$])(\$\$)*\$[^$]/.test(printed));
  t.deepEqual(await readResolved(printed, "compose.yaml", readYaml), document);
});

const escapes: [name: string, document: object, message: RegExp][] = [
  [
    "an include from the network",
    { include: ["https://example.org/c.yaml"] },
    /not a file of the package; add the file to the package$/,
  ],
  [
    "an include by git",
    { include: ["git@example.org:a/b"] },
    /not a file of the package; add the file to the package$/,
  ],
  [
    "an include by OCI",
    { include: [{ path: "oci://example.org/c" }] },
    /not a file of the package; add the file to the package$/,
  ],
  [
    "an include from above",
    { include: ["../../other/compose.yaml"] },
    /is outside the package; move it into the package$/,
  ],
  [
    "an include by its whole path",
    { include: [{ path: ["/etc/passwd"] }] },
    /is outside the package; move it into the package$/,
  ],
  [
    "an include that depends",
    { include: ["$X/compose.yaml"] },
    /must not contain variables; write the path itself$/,
  ],
  [
    "an include behind a link",
    { include: ["etc/passwd"] },
    /is a symlink, or a parent of it is; use the file itself$/,
  ],
  [
    "extends from above",
    { services: { a: { extends: { file: "../../a.yaml", service: "b" } } } },
    /is outside the package/,
  ],
  ["an environment from above", { services: { a: { env_file: ["../../.env"] } } }, /is outside the package/],
  [
    "an environment at home",
    { services: { a: { env_file: { path: "~/.aws/credentials" } } } },
    /is outside the package/,
  ],
  [
    "an environment by its whole path",
    { services: { a: { env_file: "/etc/environment" } } },
    /is outside the package/,
  ],
  ["a secret from above", { secrets: { a: { file: "../../key" } } }, /is outside the package/],
  [
    "a build from the network",
    { services: { a: { build: "https://example.org/a.git#main" } } },
    /not a file/,
  ],
  ["a build from above", { services: { a: { build: { context: "../.." } } } }, /is outside the package/],
  // Compose reads PATH as path.
  [
    "an include with a key in capitals",
    { include: [{ PATH: "/etc/passwd" }] },
    /use only path, project_directory/,
  ],
  [
    "an include from a directory that does not exist",
    { include: [{ path: "compose.yaml", project_directory: "none" }] },
    /is not a directory of the package; create it$/,
  ],
  // Some versions of compose read a number as text.
  [
    "an environment file named by a number",
    { services: { a: { env_file: 1000 } } },
    /is not text; write it in quotes$/,
  ],
  [
    "a path with a ~ that compose replaces by the home directory",
    { services: { a: { env_file: "./~/a.env" } } },
    /has a part that starts with "~"; rename it$/,
  ],
];
for (const [name, document, message] of escapes) {
  rootTest(`${name} is rejected before compose reads it${needsRoot}`, async (t) => {
    const text = stringify({ services: { web: { image: "a" } }, ...document });
    await writeFile(join(place.dir, "repo/compose.yaml"), text);
    const userHelper = await place.userHelper();
    const check = checkComposeSources(userHelper, place.dir, "repo", ["compose.yaml"], readYaml);
    t.regex((await t.throwsAsync(check)).message, message);
  });
}

const texts: [name: string, text: string, message: RegExp][] = [
  [
    "a merged environment from above",
    "x-a: &a {env_file: /etc/environment}\nservices: {web: {image: a, <<: *a}}",
    /is outside the package/,
  ],
  [
    "a bomb of aliases",
    `a: &a [x,x,x,x,x,x,x,x,x]\n${"b c d e f g h"
      .split(" ")
      .map((name, at) => `${name}: &${name} [${Array(9).fill(`*${"abcdefg"[at]!}`).join(",")}]`)
      .join("\n")}\nservices: {web: {image: a}}`,
    /values, aliases expanded/,
  ],
  ["invalid YAML", "services: [", /line 1/],
  ...["\u0085", "\u2028", "\u2029", "\r"].map((end): [string, string, RegExp] => [
    `a line that ends with U+${end.charCodeAt(0).toString(16)}`,
    `services: {}\n# a comment${end}include: [/etc/passwd]\n`,
    /^compose.yaml: line 2 contains the character U\+[0-9A-F]{4}, which ends a line; use line feeds$/,
  ]),
  [
    "a byte order mark at the start of a line",
    "\ufeff\ufeffservices:\n    web:\n        image: a\n        env_file: /etc/environment\n",
    /^compose.yaml: line 1 contains the character U\+FEFF, which is a byte order mark; remove it$/,
  ],
  ...["env_file: !reset []", "env_file: !%72eset []", "env_file: *r"].map(
    (line): [string, string, RegExp] => [
      `a merged value behind the reset value "${line}"`,
      `x-r: &r !reset []\nservices: {web: {image: a, <<: {env_file: /etc/environment}, ${line}}}`,
      /tags such as !reset are not allowed in a file with the key "<<"$/,
    ],
  ),
  [
    "an alias of an anchor that is set again on a key",
    "x-a: &a own.env\nx-b: {&a /etc/environment: 1}\nservices: {web: {image: a, env_file: *a}}",
    /is outside the package/,
  ],
  [
    "an alias of an anchor that another alias contains",
    "x-a: &b {c: &a own.env}\nx-d: &a /etc/environment\nx-e: *b\nservices: {web: {image: a, env_file: *a}}",
    /is outside the package/,
  ],
  [
    "an alias whose anchor is set again later",
    "x-a: &a /etc/environment\nx-b: &b {image: a, env_file: *a}\nx-c: &a own.env\nservices: {web: *b}",
    /is outside the package/,
  ],
  ["a file of more than 512 KiB", `# ${"x".repeat(512 * 1024)}\nservices: {}`, /524288/],
  ["a file of more than 20,000 tokens", `a: [${"x,".repeat(10_000)}]`, /tokens|20000/],
];
for (const [name, text, message] of texts) {
  rootTest(`${name} is rejected before compose reads it${needsRoot}`, async (t) => {
    await writeFile(join(place.dir, "repo/compose.yaml"), text);
    const userHelper = await place.userHelper();
    const error = await t.throwsAsync(
      checkComposeSources(userHelper, place.dir, "repo", ["compose.yaml"], readYaml),
    );
    t.true(error instanceof SvcError && error.code === "invalid_argument");
    t.regex(error.message, message);
  });
}

test("services that depend on others stop first", (t) => {
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

pythonTest("compose reads exactly the checked text, whatever it contains", (t) => {
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

test("the engine restarts nothing of a project: the file's policy is a label for svc", (t) => {
  const services = { a: { image: "a", restart: "always" }, b: { image: "b", restart: "on-failure:3" } };
  t.like(labelled({ services }, { of: () => ({ "svc.app": "x" }), ofService: () => ({}) }), {
    services: {
      a: { restart: "no", labels: { "svc.app": "x", "svc.restart": "always" } },
      b: { restart: "no", labels: { "svc.app": "x", "svc.restart": "on-failure:3" } },
    },
  });
});

test("reserved labels of an image are blanked in a project, and svc's own stay", (t) => {
  const services = { a: { image: "a", labels: { mine: "1" } } };
  const labels = {
    of: () => ({ "svc.app": "x" }),
    ofService: () => ({ "svc.app": "", "com.docker.compose.project": "" }),
  };
  const { services: labeled } = labelled({ services }, labels);
  t.like(labeled, {
    a: { labels: { mine: "1", "svc.app": "x", "com.docker.compose.project": "", "svc.restart": "" } },
  });
});
