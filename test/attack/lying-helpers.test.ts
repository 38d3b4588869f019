/** Attacks by processes that answer as a supervisor or a helper. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ProcessService } from "../../gen/svc/v1/process_pb.ts";
import { SvcError } from "../../src/errors.ts";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { changedMount } from "../../src/runtimes/containers/bind-verification.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { readProcessIdentity } from "../../src/sys/process-identity.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { DockerFixture, nobody } from "../runtimes/support/docker-fixture.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { type TestEngine, startEngine } from "../support/docker.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { programs } from "../support/programs.ts";

// A user controls the responses of their helper process, because they may trace it. Here it reports every symlink
// named `conf` as a directory. The container engine would follow the link as root.

const script = "cat /conf/secret";

interface Ground extends AsyncDisposable {
  readonly engine: TestEngine;
  readonly fixture: DockerFixture;
  /** A readable directory in a directory that only root may enter. */
  readonly closed: string;
}

async function openGround(): Promise<Ground> {
  const engine = await startEngine();
  await engine.images.build("svc/box:1");
  const closed = join(engine.dir, "closed/docs");
  await mkdir(closed, { recursive: true });
  await chmod(join(engine.dir, "closed"), 0o700);
  await writeFile(join(closed, "secret"), "secret of somebody else");
  const helperPath = join(engine.dir, "lying-helper.mjs");
  await writeFile(helperPath, lyingHelper(programs.userHelper), { mode: 0o644 });
  // The daemon looks for these beside the helper.
  for (const script of ["isolated-run.sh", "expect-identity.sh"])
    await copyFile(join(dirname(programs.userHelper), script), join(engine.dir, script));
  const fixture = await DockerFixture.create(engine, { helperPath });
  return {
    ...{ engine, fixture, closed },
    async [Symbol.asyncDispose]() {
      await fixture[Symbol.asyncDispose]();
      await engine[Symbol.asyncDispose]();
    },
  };
}

/** The real helper, whose `stat` reports a link as a directory. */
function lyingHelper(helper: string): string {
  return `import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
const { lstatSync } = fs;
fs.lstatSync = (path, ...options) => {
  const stats = lstatSync(path, ...options);
  return stats?.isSymbolicLink() && String(path).endsWith("/conf") ? fs.statSync("/tmp") : stats;
};
syncBuiltinESMExports();
await import(${JSON.stringify(pathToFileURL(helper).href)});
`;
}

/** Replaces a directory of the app with a link, as its owner. */
async function plantLink({ fixture, closed }: Ground, app: RunnableApp, path: string): Promise<void> {
  const owner = await fixture.userHelpers.as(app.uid);
  await owner.removeTree(app.directory, path);
  const link = join(app.directory, path);
  await owner.runCommand(["ln", "-s", closed, link], { cwd: "/", timeoutMs: 20_000 });
}

async function assertRejected(
  t: ExecutionContext,
  { engine }: Ground,
  app: RunnableApp,
  start: () => Promise<unknown>,
): Promise<void> {
  const error = await t.throwsAsync(start(), { instanceOf: SvcError });
  t.is((error as SvcError).reason, "denied");
  t.regex(
    error.message,
    /the mount source \S*conf is a special file or a symlink, or a parent of it is a symlink/,
  );
  const all = (await engine.request("GET", "/containers/json?all=1")).expect(200) as unknown[];
  t.deepEqual(all, [], `no container of ${app.id} is created`);
}

dockerTest(`a lying helper mounts no host path into a container${needsDocker}`, async (t) => {
  await using ground = await openGround();
  const { fixture } = ground;
  const app = await fixture.app(
    "victim",
    `docker: { image: "svc/box:1", command: ["/bin/sh", "-c", "${script}"] }\nvolumes: [{ name: conf, path: /conf }]\n`,
  );
  await fixture.runtime.check(app);
  await plantLink(ground, app, "volumes/conf");
  await fixture.runtime.check(app);
  t.is(await readlink(join(app.directory, "volumes/conf")), ground.closed, "the helper reports a directory");
  await assertRejected(t, ground, app, () => fixture.runtime.start(app));
});

composeTest(`a lying helper mounts no host path into a service${needsCompose}`, async (t) => {
  await using ground = await openGround();
  const { fixture } = ground;
  const service = { image: "svc/box:1", command: ["/bin/sh", "-c", script], volumes: ["./conf:/conf:ro"] };
  const app = await fixture.app("victim", "compose: { file: compose.yaml }\n", {
    files: { "compose.yaml": JSON.stringify({ services: { web: service } }) },
  });
  await plantLink(ground, app, "repo/conf");
  await fixture.compose.check(app);
  await assertRejected(t, ground, app, () => fixture.compose.start(app));
});

(isRoot ? test : test.skip)(
  `a helper that takes links for directories copies and removes a tree in bounded time${needsRoot}`,
  async (t) => {
    const dir = await mkdtemp(join(tmpdir(), "svc-misled-"));
    t.teardown(() => rm(dir, { recursive: true }));
    await chmod(dir, 0o755);
    const helperPath = join(dir, "lying-helper.mjs");
    await writeFile(helperPath, lyingHelper(programs.userHelper), { mode: 0o644 });
    await using userHelpers = createUserHelpers({ helperPath });
    const root = join(dir, "tree");
    await userHelpers.createOwnedDir(root, nobody);
    const owner = await userHelpers.as(nobody);
    await owner.makeDirs(root, ["from"]);
    await symlink(root, join(root, "from/conf"));
    const options = { timeoutMs: 30_000 };
    const { entries } = await owner.copyTree({ root, path: "from" }, { root, path: "to" }, options);
    t.is(entries, 2);
    await t.throwsAsync(owner.removeTree(join(root, "from"), ".", options), { message: /not empty/ });
  },
);

for (const [ended, process] of [
  ["that svc saw ended", {}],
  ["whose process is gone", { pid: 2 ** 30 }],
] as const) {
  test(`a container ${ended} does not count as verified if a mount is a link`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-ended-"));
    t.teardown(() => rm(directory, { recursive: true }));
    await mkdir(join(directory, "data/db"), { recursive: true });
    await symlink("/etc", join(directory, "data/conf"));
    const verify = (path: string): Promise<string | undefined> => {
      const source = join(directory, path);
      const mount = { type: "bind", source, destination: "/mounted", isWritable: true };
      return changedMount({ directory }, { ...process, mounts: [mount] });
    };
    t.is(await verify("data/db"), undefined);
    t.is(await verify("data/removed"), undefined);
    t.is(await verify("data/conf"), "/mounted");
    t.is(await verify("data/conf/passwd"), "/mounted");
  });
}

// The owner of an app replaces the app's supervisor by a program that claims to be a process of root, or kills the
// helpers that stop the app.

const rootTest = isRoot ? test : test.skip;
const annUid = 65534;
const endKiller = fileURLToPath(new URL("./end-killer.mjs", import.meta.url));
const program = fileURLToPath(new URL("./false-supervisor.mjs", import.meta.url));

rootTest(
  `an app that claims a process of root protects nothing, and can be removed${needsRoot}`,
  async (t) => {
    t.timeout(180_000);
    await using daemon = await startDaemon();
    await using ann = await daemon.as(annUid);
    const apps = ann.client(AppService);
    const dir = join(daemon.dir, "liar");
    await mkdir(dir);
    await chmod(dir, 0o755);
    await writeFile(
      join(dir, "svc.yaml"),
      'id: liar\nname: liar\nversion: "1"\nprocess: { exec: [sleep, "3600"] }\nrestart: { policy: never }\n',
    );
    const { id } = await apps.installApp({ spec: dir });
    await apps.startApp({ id });
    const script = 'trap "echo signaled" USR1; echo ready; while :; do sleep 1; done';
    const victim = spawn("sh", ["-c", script], { stdio: ["ignore", "pipe", "inherit"] });
    t.teardown(() => victim.kill("SIGKILL"));
    await nextEvent(victim.stdout, "data");
    const pid = victim.pid ?? 0;
    const asAnn = ["--reuid", String(annUid), "--regid", String(annUid), "--clear-groups"];
    const liar = spawn(
      "setpriv",
      [...asAnn, process.execPath, program, join(daemon.storeDir, "run", id), String(pid)],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    t.teardown(() => liar.kill("SIGKILL"));
    // It has sent a hello with the claimed state.
    await nextEvent(liar.stdout, "data");
    await eventually(async () => assert.equal((await apps.getApp({ id })).state, "RUNNING"));

    const signaled = once(victim.stdout, "data");
    await daemon.client(ProcessService).signalProcess({ pid, signal: "usr1" });
    t.is(String((await signaled)[0]), "signaled\n");
    liar.kill("SIGKILL");
    await nextEvent(liar, "exit");
    const root = daemon.client(AppService);
    await root.removeApp({ id });
    t.deepEqual((await root.listApps({})).apps, []);
    t.is(victim.exitCode ?? victim.signalCode, null);
  },
);

for (const [what, helpers, isKilled] of [
  ["each process that ends their app", 0, "killed a sweep"],
  // One may be idle. The others fail three attempts to stop the app, and some to remove its files.
  ["their next seven helpers", 7, "killed a helper"],
] as const)
  rootTest(
    `an owner who kills ${what} does not prevent root from removing the app${needsRoot}`,
    async (t) => {
      t.timeout(180_000);
      await using daemon = await startDaemon();
      await using ann = await daemon.as(annUid);
      const apps = ann.client(AppService);
      const dir = join(daemon.dir, "tough");
      await mkdir(dir);
      await chmod(dir, 0o755);
      await writeFile(
        join(dir, "svc.yaml"),
        'id: tough\nname: tough\nversion: "1"\nprocess: { exec: [sleep, "3600"] }\nrestart: { policy: never }\n',
      );
      const { id } = await apps.installApp({ spec: dir });
      await apps.startApp({ id });
      const runDir = join(daemon.storeDir, "run", id);
      const stateText = await readFile(join(runDir, "state.json"), "utf8");
      const { supervisor, app } = JSON.parse(stateText) as Record<"supervisor" | "app", { pid: number }>;
      const asAnn = ["--reuid", String(annUid), "--regid", String(annUid), "--clear-groups"];
      const killer = spawn(
        "setpriv",
        [...asAnn, process.execPath, endKiller, runDir, String(daemon.pid), String(helpers)],
        { stdio: ["ignore", "pipe", "inherit"] },
      );
      t.teardown(() => killer.kill("SIGKILL"));
      const said: string[] = [];
      killer.stdout.on("data", (text: Buffer) => said.push(...text.toString().trim().split("\n")));
      await once(killer.stdout, "data");
      // From now on only a helper can stop the app, and its owner can kill helpers.
      process.kill(supervisor.pid, "SIGKILL");
      const root = daemon.client(AppService);
      await root.removeApp({ id });
      t.deepEqual((await root.listApps({})).apps, []);
      // The killed process is gone once its new parent has noticed.
      await eventually(async () => assert.equal(await readProcessIdentity(app.pid), undefined));
      t.true(said.includes(isKilled), said.join());
      t.is(said.filter((line) => line === "killed a helper").length, helpers);
    },
  );
