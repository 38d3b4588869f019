/** Compose projects and containers that run without svc become apps. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { existsSync, readFileSync, watch, writeFileSync } from "node:fs";
import { chmod, readdir, readFile, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import { composeGenerations } from "../../support/compose-generations.ts";
import { isRoot } from "../../support/daemon.ts";
import { needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writeFiles } from "../../support/packages.ts";
import {
  createStack,
  isThere,
  slowMs,
  stackScript,
  statesOf,
  volumeNames,
} from "../../support/unmanaged-stack.ts";

const run = promisify(execFile);
const engineNow = sharedEngine();
const canRun = whyNoDocker === undefined && isRoot;
const needs = `${needsDocker}${isRoot ? "" : " (skipped: needs root)"}`;

for (const generation of composeGenerations) {
  const generationTest = canRun && generation.missing === "" ? test.serial : test.skip;

  generationTest(
    `a project of ${generation.name} is adopted with its volumes, paths, settings and port${needs}${generation.missing}`,
    async (t) => {
      t.timeout(300_000);
      const name = generation.isClassic ? "shop1" : "shop2";
      const { daemon, dir, port, compose, svc, served } = await createStack(engineNow(), name, generation);
      await using _daemon = daemon;
      await compose("up", "--detach");
      const before = await served();
      const volumes = await volumeNames(engineNow());

      const listed = await svc("adopt");
      t.regex(listed, new RegExp(`${name} +project +1/1`));
      t.regex(
        await svc("install", dir, "--name", "beside", "--yes"),
        new RegExp(`empty volumes.*svc adopt ${name}`),
      );
      await rm(join(dir, "svc.yaml"));
      await daemon.client(AppService).removeApp({ id: "beside" });
      const planned = await svc("adopt", name, "--dry-run");
      for (const part of [`${name}-web`, `${name}_data`, `${dir}/site`, "svc.yaml"])
        t.true(planned.includes(part), part);
      t.false(await isThere(join(dir, "svc.yaml")), "a dry run writes nothing");
      t.deepEqual(await statesOf(engineNow(), `${name}-web`), ["running"]);

      const adopted = await svc("adopt", name, "--yes");
      t.true(adopted.includes(`docker rm ${name}-web`), adopted);
      t.deepEqual(await served(), before);
      t.deepEqual(await statesOf(engineNow(), `${name}-web`), ["exited"]);
      const twice = await t.throwsAsync(svc("adopt", name, "--yes"));
      t.regex(twice.message, new RegExp(`app "${name}" uses volume .*svc rm ${name}`));
      t.deepEqual(await volumeNames(engineNow()), volumes, "no volume is added");
      const apps = daemon.client(AppService);
      t.like(await apps.getApp({ id: name }), { state: "RUNNING", enabled: true });
      t.is((await apps.listAppPorts({ id: name })).ports[0]?.port, port);

      // The directory is used in place, and the package can be upgraded from it.
      const born = await readFile(join(dir, "site/born"), "utf8");
      t.is(born, before[1] ?? "");
      await writeFiles(dir, { "site/later": "later" });
      t.is(await (await fetch(`http://127.0.0.1:${port}/site/later`)).text(), "later");
      await writeFiles(dir, { "web.env": "GREETING=bye\n" });
      await apps.upgradeApp({ id: name, stopApp: true, backup: false });
      t.deepEqual(await served(), [...before.slice(0, 3), "bye\n"]);

      await run("sh", ["-c", `docker rm ${name}-web`], {
        env: { ...process.env, DOCKER_HOST: `unix://${engineNow().socket}` },
      });
      await apps.removeApp({ id: name });
      t.deepEqual(await volumeNames(engineNow()), volumes, "the volumes outlive the app");
      t.is(await readFile(join(dir, "site/born"), "utf8"), born);
    },
  );
}

const adoptTest = canRun ? test.serial : test.skip;

adoptTest(`svc reads and writes files of another user's project as that user${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "theirs");
  await using _daemon = daemon;
  await chmod(daemon.dir, 0o711);
  await run("chown", ["-R", "nobody", dir]);
  await compose("up", "--detach");
  const before = await served();
  await svc("adopt", "theirs", "--yes");
  t.deepEqual(await served(), before);
  t.is((await stat(join(dir, "svc.yaml"))).uid, (await stat(dir)).uid);
  t.not((await stat(dir)).uid, 0);
});

adoptTest(`an app that does not start leaves the old containers running${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "failing");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const before = await served();
  const file = await readFile(join(dir, "compose.yaml"), "utf8");
  await writeFiles(dir, {
    "compose.yaml": file.replace(/command: .*/, 'command: ["/bin/sh", "-c", "exit 3"]'),
  });

  const error = await t.throwsAsync(svc("adopt", "failing", "--yes"));
  t.regex(error.message, /failing.*(exit|code) 3/s);
  t.regex(error.message, /; the old containers run again/);
  t.deepEqual(await served(), before);
  t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  t.false(await isThere(join(dir, "svc.yaml")));
});

adoptTest(`a single container is adopted from its configuration${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, port, served } = await createStack(engineNow(), "single");
  await using _daemon = daemon;
  const openPort = await freePort();
  const env = { ...process.env, DOCKER_HOST: `unix://${engineNow().socket}` };
  const options = [
    ...["--detach", "--name", "single", "--restart", "always", "--env", "GREETING=a $HOME"],
    ...[
      "--publish",
      `127.0.0.1:${port}:80`,
      "--publish",
      `${openPort}:81`,
      "--volume",
      "single-data:/data",
      "--volume",
      `${dir}/site:/site`,
    ],
  ];
  await run("docker", ["run", ...options, "busybox", "/bin/sh", "-c", stackScript.replaceAll("$$", "$")], {
    env,
  });
  const before = await served();
  t.is(before[3], "a $HOME\n");
  const docker = daemon.client(DockerService);
  const { plan } = await docker.adoptStack({ name: "single", dryRun: true });
  t.like(plan, { fromContainers: true, mountedPaths: [`${dir}/site`] });
  const closed = `the app publishes ${openPort}:81 at 127.0.0.1, no longer at all addresses`;
  t.true(plan?.notes.some((note) => note.startsWith(closed)));
  const error = await errorOf(docker.adoptStack({ name: "single", containerIds: ["0"] }));
  t.is(error.reason, "not_possible");

  const { app } = await docker.adoptStack({ name: "single", permissionsAck: true });
  t.like(app, { id: "single", state: "RUNNING" });
  t.deepEqual(await served(), before);
  const { engine } = await docker.inspectContainer({ container: "single" });
  t.like(engine, { HostConfig: { RestartPolicy: { Name: "no" } }, State: { Status: "exited" } });
  const again = await errorOf(docker.adoptStack({ name: "single-web" }));
  t.is(again.reason, "not_found");
  t.deepEqual(await readdir(join(daemon.storeDir, "adopted")), [basename(plan?.directory ?? "")]);
  await daemon.client(AppService).removeApp({ id: "single" });
  t.deepEqual(await readdir(join(daemon.storeDir, "adopted")), [], "the package is removed with the app");
});

adoptTest(`a second adoption of a container that fails keeps the package of the first${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon } = await createStack(engineNow(), "twice");
  await using _daemon = daemon;
  await engineNow().images.build("dataless:latest", {});
  const env = { ...process.env, DOCKER_HOST: `unix://${engineNow().socket}` };
  await run("docker", ["run", "--detach", "--name", "twice", "dataless", "/bin/sleep", "9999"], { env });
  const docker = daemon.client(DockerService);
  const { plan } = await docker.adoptStack({ name: "twice" });
  const error = await errorOf(docker.adoptStack({ name: "twice", settings: { unknown: 1 } }));
  t.is(error.reason, "invalid_request");
  t.deepEqual(await readdir(join(daemon.storeDir, "adopted")), [basename(plan?.directory ?? "")]);
});

adoptTest(`a project without its files keeps its network for other containers${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "gone");
  await using _daemon = daemon;
  const file = join(dir, "compose.yaml");
  // The end of the engine's pool: the engine itself allocates from its beginning.
  const [first, second, third] = engineNow().pool.split(".");
  const subnet = `${first}.${second}.${Number(third) + 15}.0/24`;
  const network = `networks: { default: { ipam: { config: [{ subnet: ${subnet} }] } } }\n`;
  await writeFiles(dir, { "compose.yaml": `${await readFile(file, "utf8")}${network}` });
  await compose("up", "--detach");
  const before = await served();
  const docker = async (...args: string[]): Promise<string> =>
    (await run("docker", args, { env: { ...process.env, DOCKER_HOST: `unix://${engineNow().socket}` } }))
      .stdout;
  await docker(
    "run",
    "--detach",
    "--name",
    "proxy",
    "--network",
    "gone_default",
    "busybox",
    "/bin/sleep",
    "9999",
  );
  await rm(file);

  const planned = await svc("adopt", "gone", "--dry-run");
  t.true(planned.includes(`${file} is not a file`), planned);
  await svc("adopt", "gone", "--accept-permissions", "--yes");

  t.deepEqual(await served(), before);
  t.is(await docker("exec", "proxy", "/bin/wget", "-qO-", "http://web/data/born"), before[0] ?? "");
  await daemon.client(AppService).removeApp({ id: "gone" });
  await docker("rm", "--force", "proxy");
});

adoptTest(`an adoption that would change an image is rejected${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "newer");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const before = await served();
  await engineNow().images.build("busybox:2", { volumes: ["/cache"] });
  const file = await readFile(join(dir, "compose.yaml"), "utf8");
  await writeFiles(dir, { "compose.yaml": file.replace("image: busybox", "image: busybox:2") });
  const error = await t.throwsAsync(svc("adopt", "newer", "--yes"));
  t.regex(error.message, /runs busybox:2 .* "newer-web" runs busybox/);
  t.deepEqual(await statesOf(engineNow(), "newer-web"), ["running"]);
  t.deepEqual(await served(), before);
  t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
});

const changes: Readonly<Record<string, (file: string) => Record<string, string>>> = {
  "the compose file": (file) => ({
    "compose.yaml": file.replace("restart: always", "restart: always\n    privileged: true"),
  }),
  "an environment file": () => ({ "web.env": "GREETING=evil\n" }),
  "a manifest beside it": () => ({ "svc.yaml": `id: late\nname: Late\nversion: "1"\ncompose: {}\n` }),
};
adoptTest(`an adoption of other files than those of the confirmed plan is rejected${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, served } = await createStack(engineNow(), "planned");
  await using _daemon = daemon;
  // The generated manifest contains the default.
  const text = await readFile(join(dir, "compose.yaml"), "utf8");
  const set = 'restart: always\n    environment: { MOTD: "${MOTD:-schön}" }';
  await writeFiles(dir, { "compose.yaml": text.replace("restart: always", set) });
  await compose("up", "--detach");
  const before = await served();
  const docker = daemon.client(DockerService);
  const { plan } = await docker.adoptStack({ name: "planned", dryRun: true });
  const planDigest = plan?.digest ?? "";
  t.regex(planDigest, /^[0-9a-f]{64}$/);
  const file = await readFile(join(dir, "compose.yaml"), "utf8");
  const original = { "compose.yaml": file, "web.env": "GREETING=hello\n" };
  for (const [what, change] of Object.entries(changes)) {
    await writeFiles(dir, change(file));
    const error = await errorOf(docker.adoptStack({ name: "planned", planDigest, permissionsAck: true }));
    t.is(error.reason, "not_possible", what);
    t.regex(error.message, /"planned" have changed; review the new plan, and adopt again/, what);
    await writeFiles(dir, original);
    await rm(join(dir, "svc.yaml"), { force: true });
  }
  t.deepEqual(await served(), before);
  t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  const { app } = await docker.adoptStack({ name: "planned", planDigest });
  t.is(app?.state, "RUNNING");
  t.deepEqual(await served(), before);
});

adoptTest(`an adoption is rejected if its files change before the containers stop${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, served } = await createStack(engineNow(), "changing");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const before = await served();
  // Changes the file all the time, so that the copy differs from what the plan read.
  const change = "n=0; while sleep 0.01; do n=$((n+1)); echo GREETING=evil$n > new; mv new web.env; done";
  const changes = spawn("sh", ["-c", change], { cwd: dir });
  const docker = daemon.client(DockerService);
  const error = await errorOf(docker.adoptStack({ name: "changing", permissionsAck: true }));
  changes.kill();
  t.is(error.reason, "not_possible");
  t.regex(error.message, /files of "changing" have changed since the plan/);
  t.deepEqual(await statesOf(engineNow(), "changing-web"), ["running"]);
  t.deepEqual(await served(), before);
  t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
});

adoptTest(
  `an adoption is rejected if the app would merge a compose file that the plan lacks${needs}`,
  async (t) => {
    t.timeout(300_000);
    const { daemon, dir, compose, served } = await createStack(engineNow(), "merging");
    await using _daemon = daemon;
    await compose("up", "--detach");
    const before = await served();
    const docker = daemon.client(DockerService);
    const { plan } = await docker.adoptStack({ name: "merging", dryRun: true });
    await writeFiles(dir, {
      "compose.override.yaml": "services: { web: { environment: { GREETING: evil } } }\n",
    });
    const request = { name: "merging", planDigest: plan?.digest ?? "", permissionsAck: true };
    const error = await errorOf(docker.adoptStack(request));
    t.is(error.reason, "not_possible");
    t.regex(
      error.message,
      /the app would run compose\.yaml, compose\.override\.yaml, .* was started with compose\.yaml/,
    );
    t.deepEqual(await statesOf(engineNow(), "merging-web"), ["running"]);
    t.deepEqual(await served(), before);
    t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  },
);

adoptTest(`a manifest that is exchanged while the directory is read is not used${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, served } = await createStack(engineNow(), "exchanged");
  await using _daemon = daemon;
  const text = await readFile(join(dir, "compose.yaml"), "utf8");
  const set = 'restart: always\n    environment: { MOTD: "${MOTD:-good}" }';
  await writeFiles(dir, { "compose.yaml": text.replace("restart: always", set) });
  await compose("up", "--detach");
  const before = await served();
  const manifest = join(dir, "svc.yaml");
  let planned = "";
  // The adoption writes the planned manifest, and the owner of the directory exchanges it before the install reads it.
  const watcher = watch(dir, () => {
    if (planned !== "" || !existsSync(manifest)) return;
    planned = readFileSync(manifest, "utf8");
    writeFileSync(manifest, planned.replace("env: MOTD", "default: evil\n      env: MOTD"));
  });
  t.teardown(() => watcher.close());
  const apps = daemon.client(AppService);
  const adopt = async (): Promise<void> => {
    const events = daemon.client(DockerService).adoptStackStream({ name: "exchanged", permissionsAck: true });
    // The first event comes before the copy of the directory.
    for await (const _event of events) {
      watcher.close();
      writeFileSync(manifest, planned);
    }
  };
  // An exchange that comes too late is harmless: the app has the planned manifest then.
  const failure = await adopt().then(() => "none", String);
  t.regex(failure, /^none$|svc\.yaml of "exchanged" changed while it was read/);
  for (const { id } of (await apps.listApps({})).apps)
    t.false(Object.hasOwn((await apps.getAppSettings({ id })).values ?? {}, "motd"));
  t.deepEqual(await served(), before);
});

const hostileManifests = {
  "a process": `process: { exec: [/bin/sleep, "99"] }`,
  "a command beside the compose file": `compose: { file: compose.yaml }\nbackup: { dump: { exec: [/bin/true] } }`,
};
for (const [what, text] of Object.entries(hostileManifests)) {
  adoptTest(`a project with a manifest that runs ${what} is not adopted${needs}`, async (t) => {
    t.timeout(300_000);
    const { daemon, dir, compose, svc, served } = await createStack(engineNow(), "hostile");
    await using _daemon = daemon;
    await compose("up", "--detach");
    const before = await served();
    await writeFiles(dir, { "svc.yaml": `id: hostile\nname: Hostile\nversion: "1"\n${text}\n` });
    const error = await t.throwsAsync(svc("adopt", "hostile", "--accept-permissions", "--yes"));
    t.regex(error.message, /svc\.yaml runs (no compose file|commands on the host as root \(backup\.dump\))/);
    t.deepEqual(await served(), before);
    t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
    await compose("down", "--volumes");
  });
}

adoptTest(`a variable of the shell is set with the adoption${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, port, compose, svc, served } = await createStack(engineNow(), "shell");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const before = await served();
  await writeFiles(dir, { ".env": "" });
  const file = await readFile(join(dir, "compose.yaml"), "utf8");
  await writeFiles(dir, { "compose.yaml": file.replace("${WEB_PORT}", "${WEB_PORT:?}") });
  const error = await t.throwsAsync(svc("adopt", "shell", "--yes"));
  t.regex(error.message, /--set web_port=/);
  t.deepEqual(await statesOf(engineNow(), "shell-web"), ["running"]);
  await svc("adopt", "shell", "--set", `web_port=${port}`, "--yes");
  t.deepEqual(await served(), before);
});

adoptTest(`the next daemon starts the old containers of an interrupted adoption${needs}`, async (t) => {
  t.timeout(300_000);
  const { daemon, dir, compose, served } = await createStack(engineNow(), "killed");
  await using _daemon = daemon;
  await compose("up", "--detach");
  const before = await served();
  const file = await readFile(join(dir, "compose.yaml"), "utf8");
  const check = `    healthcheck: { test: ["CMD", "false"], interval: 1s, retries: 1000, start_period: 1000s }\n`;
  await writeFiles(dir, { "compose.yaml": file.replace("    restart:", `${check}    restart:`) });
  const { detached } = await daemon.client(DockerService).adoptStack({ name: "killed", detach: true });
  const operations = daemon.client(OperationService);
  await eventually(async () => {
    const { phase } = await operations.getOperation({ id: detached?.id ?? "" });
    assert.equal(phase, "health");
  }, slowMs);
  t.deepEqual(await statesOf(engineNow(), "killed-web"), ["exited"]);

  await daemon.kill();
  await daemon.restart();

  t.deepEqual(await served(), before);
  await eventually(async () => {
    assert.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  }, slowMs);
  t.deepEqual(await statesOf(engineNow(), "killed-web"), ["running"]);
});
