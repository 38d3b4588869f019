/** Attacks of a user through names of images, which all users of an engine share. */
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { startDaemon, type TestDaemon, type UserConnection, isRoot, needsRoot } from "../support/daemon.ts";
import { hostArchitecture } from "../support/docker-images.ts";
import { registryUser, type TestRegistry } from "../support/docker-registry.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { writeFiles } from "../support/packages.ts";

// A regular user names private images that root has pulled: the engine's images are shared by all users.

const reader = 5;
const nobody = 65_534;
const engineNow = sharedEngine();
const shared: { registry?: TestRegistry; digest?: string; id?: string } = {};

if (whyNoDocker === undefined) {
  test.before(async () => {
    const engine = engineNow();
    const registry = await engine.registry(registryUser);
    shared.registry = registry;
    await engine.images.build("svc/base:1");
    // The engine's state as if root had pulled it.
    shared.id = await engine.images.build(`${registry.host}/secret:1`, { files: { "etc/key": "secret" } });
    shared.digest = await engine.images.push(`${registry.host}/secret:1`, registryUser);
    await engine.images.build("private.local/only-here:1", { files: { "etc/key": "secret" } });
  });
}

function registryNow(): TestRegistry {
  if (shared.registry === undefined) throw new Error("the registry has not been started");
  return shared.registry;
}

/** Installs a package with these files and this ID. */
async function install(
  daemon: TestDaemon,
  user: Pick<UserConnection, "client">,
  id: string,
  runtime: string,
  files: Readonly<Record<string, string>> = {},
): Promise<void> {
  const dir = join(daemon.dir, id);
  const head = `id: ${id}\nname: ${id}\nversion: "1"\nsummary: Sleeps.\n`;
  await writeFiles(dir, { "svc.yaml": `${head}${runtime}\n`, ...files });
  await user.client(AppService).installApp({ spec: dir });
}

async function addLogin(user: UserConnection, host: string): Promise<void> {
  const { name: username, password: secret } = registryUser;
  await user
    .client(CredentialService)
    .upsertCredential({ name: "registry", kind: "registry", host, username, secret });
}

/** Ways to name an image in a package. */
const packages: Readonly<
  Record<string, (image: string) => { runtime: string; files?: Readonly<Record<string, string>> }>
> = {
  image: (image) => ({ runtime: `docker: { image: "${image}" }` }),
  from: (image) => ({
    runtime: "docker: { build: {} }",
    files: { Dockerfile: `FROM ${image}\nRUN cat /etc/key\n` },
  }),
  copy: (image) => ({
    runtime: "docker: { build: {} }",
    files: { Dockerfile: `FROM svc/base:1\nCOPY --from=${image} /etc/key /key\nRUN cat /key\n` },
  }),
};

for (const [way, packageOf] of Object.entries(packages)) {
  dockerTest(`a private image that root has pulled is not found by ${way}${needsDocker}`, async (t) => {
    const { registry, digest } = shared;
    await using daemon = await startDaemon({ config: engineNow().config });
    await using user = await daemon.as(nobody);
    const host = registry?.host ?? "";
    const failureOf = async (image: string): Promise<string> => {
      const { runtime, files } = packageOf(image);
      const error = await errorOf(install(daemon, user, "nosy", runtime, files));
      t.is(error.code, "NotFound", `${image}: ${error.message}`);
      return error.message.replaceAll(image, "IMAGE");
    };
    const failure = await failureOf(`${host}/secret:1`);
    t.is(await failureOf(`${host}/missing:1`), failure);
    t.is(await failureOf(`${host}/secret@${digest ?? ""}`), failure);
    t.is(await failureOf(`${host}/missing@${digest ?? ""}`), failure);
  });
}

composeTest(`a private image that root has pulled is not found by a project${needsCompose}`, async (t) => {
  const host = shared.registry?.host ?? "";
  await using daemon = await startDaemon({ config: engineNow().config });
  await using user = await daemon.as(nobody);
  const failureOf = async (image: string): Promise<string> => {
    const files = { "compose.yaml": `services:\n  web:\n    image: "${image}"\n` };
    const error = await errorOf(install(daemon, user, "nosy", "compose: { file: compose.yaml }", files));
    t.is(error.code, "NotFound", `${image}: ${error.message}`);
    return error.message.replaceAll(image, "IMAGE");
  };
  t.is(await failureOf(`${host}/secret:1`), await failureOf(`${host}/missing:1`));
});

// The engine does not limit how much it reads from a registry, so regular users name only registries that root lists.

/** The engine's configuration with the default list of registries, which includes none on this host. */
function closedConfig(): string {
  return engineNow().config.replace(/^users_registries.*$/m, "");
}

for (const [way, packageOf] of Object.entries(packages)) {
  dockerTest(
    `a user gets no image from a registry that is not listed, by ${way}${needsDocker}`,
    async (t) => {
      const { host } = await engineNow().registry();
      await using daemon = await startDaemon({ config: closedConfig() });
      await using user = await daemon.as(nobody);
      const { runtime, files } = packageOf(`${host}/open:1`);
      const { code, message } = await errorOf(install(daemon, user, "unlisted", runtime, files));
      t.is(code, "PermissionDenied", message);
      t.true(message.includes(`root can add "${host}" to users_registries in the section [docker]`), message);
    },
  );
}

dockerTest(
  `the engine sends nothing to a registry that is not listed for a user${needsDocker}`,
  async (t) => {
    const requests: string[] = [];
    const server = createServer(({ url = "" }, response) => {
      requests.push(url);
      response.writeHead(404).end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    await using daemon = await startDaemon({ config: closedConfig() });
    await using user = await daemon.as(nobody);
    for (const packageOf of Object.values(packages)) {
      const { runtime, files } = packageOf(`${host}/open:1`);
      await errorOf(install(daemon, user, "unlisted", runtime, files));
    }
    // The builder of users ignores frontends.
    const Dockerfile = `# syntax=${host}/frontend:1\nFROM svc/base:1\nRUN true\n`;
    await install(daemon, user, "fronted", "docker: { build: {} }", { Dockerfile });
    t.deepEqual(requests, []);
    await errorOf(install(daemon, daemon, "roots", `docker: { image: "${host}/open:1" }`));
    t.true(requests.length > 0, "root may use all registries");
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  },
);

composeTest(`a user's project gets no image from a registry that is not listed${needsCompose}`, async (t) => {
  const { host } = await engineNow().registry();
  await using daemon = await startDaemon({ config: closedConfig() });
  await using user = await daemon.as(nobody);
  for (const policy of ["always", "if_not_present", "never"]) {
    const service = `{ image: "${host}/open:1", pull_policy: ${policy} }`;
    const files = { "compose.yaml": `services:\n  web: ${service}\n` };
    const error = await errorOf(install(daemon, user, "unlisted", "compose: { file: compose.yaml }", files));
    t.regex(error.message, policy === "never" ? /is not found on this host/ : /users_registries/, policy);
  }
});

dockerTest(
  `an installed app keeps its image when its registry leaves the list, and gets no newer one${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    const { host } = await engine.registry();
    const image = `${host}/listed:latest`;
    await engine.images.build(image);
    await engine.images.push(image);
    await engine.images.remove(image);
    await using daemon = await startDaemon({ config: engine.config });
    const manifest = `stop: { grace: 1s }\ndocker: { image: "${image}" }`;
    {
      await using user = await daemon.as(nobody);
      await install(daemon, user, "listed", manifest);
    }
    const file = daemon.configFile;
    await writeFile(file, (await readFile(file, "utf8")).replace(/^users_registries.*$/m, ""));
    await daemon.restart();
    t.true(daemon.log().includes(`users_registries: ${image} (uid ${nobody}); these apps run`), daemon.log());
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService);
    t.is((await apps.startApp({ id: "listed" })).state, "RUNNING");
    const { freshness, freshnessReason } = await apps.getAppImage({ id: "listed", checkRemote: true });
    t.is(freshness, "unknown");
    t.regex(freshnessReason ?? "", /users_registries/);
    t.is((await errorOf(apps.repullApp({ id: "listed" }))).code, "PermissionDenied");
    t.is((await apps.getApp({ id: "listed" })).state, "RUNNING");
    await t.notThrowsAsync(install(daemon, daemon, "roots", manifest), "root may use all registries");
  },
);

dockerTest(
  `an image without a registry fails for a user like an unknown one, and works for root${needsDocker}`,
  async (t) => {
    await using daemon = await startDaemon({ config: engineNow().config });
    await using user = await daemon.as(nobody);
    const failureOf = async (image: string): Promise<string> => {
      const error = await errorOf(install(daemon, user, "nosy", `docker: { image: "${image}" }`));
      return error.message.replaceAll(image, "IMAGE");
    };
    t.is(await failureOf("private.local/only-here:1"), await failureOf("private.local/missing:1"));
    await t.notThrowsAsync(install(daemon, daemon, "own", 'docker: { image: "private.local/only-here:1" }'));
  },
);

dockerTest(
  `an image pulled for one user starts without the registry, and is not found by another${needsDocker}`,
  async (t) => {
    const registry = registryNow();
    const manifest = `docker: { image: "${registry.host}/secret:1" }`;
    await using daemon = await startDaemon({ config: engineNow().config });
    await using user = await daemon.as(reader);
    await using other = await daemon.as(nobody);
    await addLogin(user, registry.host);
    await install(daemon, user, "reader", manifest);
    await registry.stop();
    try {
      await user.client(AppService).startApp({ id: "reader" });
      t.is((await user.client(AppService).getApp({ id: "reader" })).state, "RUNNING");
      await install(daemon, user, "again", manifest);
      const { message } = await errorOf(install(daemon, other, "nosy", manifest));
      t.regex(message, /is not available: .*try again when the registry \S+ can be reached/);
    } finally {
      await registry.start();
    }
    t.is((await errorOf(install(daemon, other, "nosy", manifest))).code, "NotFound");
  },
);

dockerTest(
  `an image under a known name that was not pulled for the user is confirmed again${needsDocker}`,
  async (t) => {
    const { id = "" } = shared;
    const open = await engineNow().registry();
    const tag = `${open.host}/open:1`;
    await engineNow().images.tag("svc/base:1", tag);
    const digest = await engineNow().images.push(tag);
    await using daemon = await startDaemon({ config: engineNow().config });
    await using user = await daemon.as(nobody);
    await install(daemon, user, "open", `docker: { image: "${tag}" }`);
    // Root assigns the name to the private image.
    await engineNow().images.tag(id, tag);
    await user.client(AppService).startApp({ id: "open" });
    const image = await user.client(AppService).getAppImage({ id: "open" });
    t.is(image.localDigest, digest);
    t.is((await user.client(AppService).getApp({ id: "open" })).state, "RUNNING");

    // Without its registry the app runs on the image that was pulled for it.
    await user.client(AppService).stopApp({ id: "open" });
    await engineNow().images.tag(id, tag);
    await open.stop();
    try {
      await user.client(AppService).startApp({ id: "open" });
    } finally {
      await open.start();
    }
    const filters = encodeURIComponent(JSON.stringify({ label: ["svc.app=open"] }));
    const running = (await engineNow().request("GET", `/containers/json?filters=${filters}`)).expect(200) as {
      ImageID: string;
    }[];
    t.deepEqual(
      running.map(({ ImageID }) => ImageID === id),
      [false],
    );
    await user.client(AppService).stopApp({ id: "open" });
  },
);

dockerTest(
  `an app that an older svc installed starts without the registry, and no other app gets its image${needsDocker}`,
  async (t) => {
    const registry = registryNow();
    const manifest = `docker: { image: "${registry.host}/secret:1" }`;
    await using daemon = await startDaemon({ config: engineNow().config });
    {
      await using user = await daemon.as(reader);
      await addLogin(user, registry.host);
      await install(daemon, user, "older", manifest);
    }
    await daemon.stop();
    // The state after an upgrade of the database.
    using database = new DatabaseSync(join(daemon.storeDir, "svc.db"));
    database.exec("DELETE FROM user_images");
    database.exec(`INSERT INTO apps_without_recorded_images VALUES ('older', ${reader})`);
    database.close();
    await registry.stop();
    try {
      await daemon.restart();
      await using user = await daemon.as(reader);
      await using other = await daemon.as(nobody);
      t.regex((await errorOf(install(daemon, other, "nosy", manifest))).message, /is not available/);
      await user.client(AppService).startApp({ id: "older" });
      t.is((await user.client(AppService).getApp({ id: "older" })).state, "RUNNING");
    } finally {
      await registry.start();
    }
  },
);

// A registry that sends other content than its digests name.

interface LyingRegistry extends AsyncDisposable {
  readonly host: string;
  /** Number of responses that it changed. */
  readonly changed: number;
}

/** Passes requests on to a registry, and changes the last byte of responses whose path matches. */
async function lyingRegistry(behind: string, lie: RegExp): Promise<LyingRegistry> {
  let changed = 0;
  const server = createServer((request, response) => {
    const { method = "", url = "", headers } = request;
    void (async () => {
      const accept = headers.accept ?? "*/*";
      const answer = await fetch(`http://${behind}${url}`, { method, headers: { accept } });
      const bytes = Buffer.from(await answer.arrayBuffer());
      if (method === "GET" && lie.test(url) && bytes.length > 0) {
        changed += 1;
        // Spaces keep JSON valid.
        const last = bytes.length - 1;
        bytes[last] = bytes[last] === 0x7d ? 0x7d : (bytes[last] ?? 0) ^ 1;
        if (bytes[last] === 0x7d) bytes[last - 1] = (bytes[last - 1] ?? 0) ^ 1;
      }
      const passed = ["content-type", "docker-content-digest", "docker-distribution-api-version"];
      const sent = passed.flatMap((name) => {
        const value = answer.headers.get(name);
        return value === null ? [] : [[name, value] as const];
      });
      const length = method === "HEAD" ? answer.headers.get("content-length") : String(bytes.length);
      response.writeHead(answer.status, { ...Object.fromEntries(sent), "content-length": length ?? "0" });
      response.end(method === "HEAD" ? undefined : bytes);
    })().catch(() => response.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get changed() {
      return changed;
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

for (const [what, lie, isPinned] of [
  ["a layer or configuration", /\/blobs\//, false],
  ["a manifest", /\/manifests\//, true],
] as const) {
  dockerTest(`${what} that does not match its digest gives a user no image${needsDocker}`, async (t) => {
    const engine = engineNow();
    const { host: behind } = await engine.registry();
    const name = isPinned ? "pinned" : "altered";
    await engine.images.build(`${behind}/${name}:1`, { files: { "etc/key": name } });
    const digest = await engine.images.push(`${behind}/${name}:1`);
    await engine.images.remove(`${behind}/${name}:1`);
    await using lying = await lyingRegistry(behind, lie);
    const image = `${lying.host}/${name}${isPinned ? `@${digest}` : ":1"}`;
    await using daemon = await startDaemon({ config: engine.config });
    await using user = await daemon.as(nobody);
    const error = await errorOf(install(daemon, user, name, `docker: { image: "${image}" }`));
    t.log(error.message);
    t.true(lying.changed > 0);
    t.is((await engine.request("GET", `/images/${image}/json`)).status, 404);
    t.deepEqual((await user.client(AppService).listApps({})).apps, []);
  });
}

// A user pulls an image with a name that another owner's app runs.

async function installAndStart(
  daemon: TestDaemon,
  by: Pick<TestDaemon, "client">,
  id: string,
  image: string,
) {
  const dir = join(daemon.dir, id);
  const head = `id: ${id}\nname: ${id}\nversion: "1"\nstop: { grace: 1s }\n`;
  await writeFiles(dir, { "svc.yaml": `${head}docker: { image: "${image}" }\n` });
  const apps = by.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id });
}

dockerTest(`a user's first start does not move a tag that root's app runs${needsDocker}`, async (t) => {
  const engine = engineNow();
  const { host } = await engine.registry();
  const image = `${host}/web:1`;
  const old = await engine.images.build(image, { labels: { release: "old" } });
  await engine.images.push(image);
  await engine.images.build(`${host}/web:next`, { labels: { release: "new" } });
  await using daemon = await startDaemon({ config: engine.config });
  await using user = await daemon.as(65_534);
  await installAndStart(daemon, daemon, "roots", image);
  // The registry moves its tag, and the engine keeps the old image.
  await engine.images.tag(`${host}/web:next`, image);
  await engine.images.push(image);
  await engine.images.remove(`${host}/web:next`);
  await engine.images.tag(old, image);

  await installAndStart(daemon, user, "users", image);
  const named = (await engine.request("GET", `/images/${image}/json`)).expect(200) as { Id: string };
  t.is(named.Id, old);
  t.is((await daemon.client(AppService).restartApp({ id: "roots" })).state, "RUNNING");
});

// A user's project requests another platform's image under a name that others use, too.

const second = composeGenerations.find(({ isClassic }) => !isClassic);
const missing = isRoot ? (second?.missing ?? "") : needsRoot;
const platformTest = whyNoDocker === undefined && missing === "" ? test : test.skip;
const other = hostArchitecture === "arm64" ? "amd64" : "arm64";
const listType = "application/vnd.docker.distribution.manifest.list.v2+json";
const manifestType = "application/vnd.docker.distribution.manifest.v2+json";

/** Gives `web:1` of the registry one image for each architecture. */
async function pushForBoth(host: string): Promise<void> {
  const { images } = engineNow();
  const manifests = [];
  for (const architecture of [hostArchitecture, other]) {
    const tag = `${host}/web:${architecture}`;
    await images.build(tag, { architecture });
    const digest = await images.push(tag);
    await images.remove(tag);
    const answer = await fetch(`http://${host}/v2/web/manifests/${digest}`, {
      headers: { accept: manifestType },
    });
    const { length: size } = await answer.bytes();
    manifests.push({ mediaType: manifestType, digest, size, platform: { architecture, os: "linux" } });
  }
  const { status } = await fetch(`http://${host}/v2/web/manifests/1`, {
    method: "PUT",
    headers: { "content-type": listType },
    body: JSON.stringify({ schemaVersion: 2, mediaType: listType, manifests }),
  });
  if (status !== 201) throw new Error(`the registry returns ${status}`);
}

platformTest(
  `a user's project does not assign another platform's image to an existing name${missing}`,
  async (t) => {
    t.timeout(240_000);
    const engine = engineNow();
    const { host } = await engine.registry();
    await pushForBoth(host);
    const path = `[apps]\npath = ${JSON.stringify(second?.dirs ?? [])}\n`;
    await using daemon = await startDaemon({ config: `${engine.config}\n${path}` });
    await using user = await daemon.as(65_534);
    const head = (id: string): string =>
      `id: ${id}\nname: ${id}\nversion: "1"\nsummary: Sleeps.\nstop: { grace: 1s }\n`;
    const roots = join(daemon.dir, "roots");
    await writeFiles(roots, { "svc.yaml": `${head("roots")}docker: { image: "${host}/web:1" }\n` });
    await daemon.client(AppService).installApp({ spec: roots });
    const architectureNow = async (): Promise<string> => {
      const answer = await engine.request("GET", `/images/${host}/web:1/json`);
      return (answer.expect(200) as { Architecture: string }).Architecture;
    };
    t.is(await architectureNow(), hostArchitecture);

    const users = join(daemon.dir, "users");
    await writeFiles(users, {
      "svc.yaml": `${head("users")}compose: { file: compose.yaml }\n`,
      "compose.yaml": `services: { web: { image: "${host}/web:1", platform: linux/${other} } }\n`,
    });
    await user.client(AppService).installApp({ spec: users });
    const refused = await errorOf(user.client(AppService).startApp({ id: "users" })).catch(() => undefined);
    t.is(await architectureNow(), hostArchitecture);
    t.regex(refused?.message ?? "", /does not (?:match|provide) the specified platform/);
    t.is((await daemon.client(AppService).startApp({ id: "roots" })).state, "RUNNING");
  },
);
