/** A regular user names private images that root has pulled: the engine's images are shared by all users. */
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon, type UserDoor } from "../support/daemon.ts";
import { registryUser, type TestRegistry } from "../support/docker-registry.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { writeFiles } from "../support/packages.ts";

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

/** Installs a package of these files; the manifest gets its ID. */
async function install(
  daemon: TestDaemon,
  user: Pick<UserDoor, "client">,
  id: string,
  runtime: string,
  files: Readonly<Record<string, string>> = {},
): Promise<void> {
  const dir = join(daemon.dir, id);
  const head = `id: ${id}\nname: ${id}\nversion: "1"\nsummary: Sleeps.\n`;
  await writeFiles(dir, { "svc.yaml": `${head}${runtime}\n`, ...files });
  await user.client(AppService).installApp({ spec: dir });
}

async function addLogin(user: UserDoor, host: string): Promise<void> {
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
    const { registry } = shared;
    if (registry === undefined) throw new Error("there is no registry");
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
    const { registry, id = "" } = shared;
    if (registry === undefined) throw new Error("there is no registry");
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
    await user.client(AppService).startApp({ id: "open" });
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
    const { registry } = shared;
    if (registry === undefined) throw new Error("there is no registry");
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
