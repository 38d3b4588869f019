/** The life of self-hosted stacks on a real engine, for the test files that each have some of the stacks. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { findCompose } from "../../src/authoring/compose-program.ts";
import { planManifest } from "../../src/authoring/derive.ts";
import { PackageFiles } from "../../src/authoring/package-files.ts";
import { installedCompose } from "./compose-generations.ts";
import { isRoot, startDaemon, type TestDaemon, type UserConnection } from "./daemon.ts";
import { needsDocker, sharedEngine } from "./docker-test.ts";
import { whyNoDocker } from "./docker.ts";
import { errorOf } from "./errors.ts";
import { eventually } from "./eventually.ts";
import { writeFiles } from "./packages.ts";
import type { PopularStack } from "./popular-stacks.ts";

const run = promisify(execFile);
const nobody = 65534;
const engineNow = sharedEngine();
const skipped = needsDocker || (installedCompose === undefined ? " (skipped: needs compose)" : "");

/** One at a time: they share an engine, which is empty afterwards. */
const stackTest = whyNoDocker === undefined && installedCompose !== undefined ? test.serial : test.skip;

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/stack:1");
});

const hasAllCapabilities =
  /^CapBnd:\s+(.*)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] === allCapabilities();

/** The mask of all capabilities of the kernel, as in `/proc/PID/status`. */
function allCapabilities(): string {
  const last = BigInt(readFileSync("/proc/sys/kernel/cap_last_cap", "utf8").trim());
  return ((1n << (last + 1n)) - 1n).toString(16).padStart(16, "0");
}

function configNow(): string {
  return `${engineNow().config}\n[apps]\npath = ${JSON.stringify(installedCompose?.dirs ?? [])}\n`;
}

/** Writes a version of the package as a repository of the user, whose tags are its versions. */
async function publish(
  directory: string,
  { compose, files = {}, manifest = ["", ""] }: PopularStack,
  { uid, revision }: { uid: number; revision: number },
): Promise<void> {
  for (const file of Object.keys(files)) await mkdir(join(directory, dirname(file)), { recursive: true });
  await writeFiles(directory, {
    ...files,
    "compose.yaml": compose
      .replaceAll("REVISION", String(revision))
      .replaceAll("ENGINE_SOCKET", engineNow().socket),
  });
  const env = { PATH: (installedCompose?.dirs ?? []).join(delimiter) };
  const { text } = await planManifest(new PackageFiles(directory), { findCompose: () => findCompose(env) });
  await writeFiles(directory, { "svc.yaml": text.replace("1.0.0", `${revision}.0.0`).replace(...manifest) });
  const git = (...args: string[]): Promise<unknown> =>
    run("git", [
      ...["-C", directory, "-c", `safe.directory=${directory}`],
      ...["-c", "user.name=t", "-c", "user.email=t@example.org", ...args],
    ]);
  await git("init", "--quiet", "--initial-branch=main");
  await git("add", "--all", "--force");
  await git("commit", "--quiet", "--message", String(revision));
  await git("tag", `v${revision}.0.0`);
  if (isRoot) await run("chown", ["-R", `${uid}:${uid}`, directory]);
}

class Life {
  readonly apps;
  readonly backups;
  readonly #stack: PopularStack;

  constructor(connection: TestDaemon | UserConnection, stack: PopularStack) {
    this.apps = connection.client(AppService);
    this.backups = connection.client(BackupService);
    this.#stack = stack;
  }

  async start(id: string): Promise<void> {
    await this.apps.startApp({ id });
    await this.expectUp(id);
  }

  async expectUp(id: string): Promise<void> {
    await eventually(async () => {
      const { state, health, healthReason } = await this.apps.getApp({ id });
      assert.equal(state, "RUNNING");
      const expected = this.#stack.compose.includes("healthcheck:") ? "healthy" : "none";
      assert.equal(health, expected, healthReason);
    }, 120_000);
  }

  /** A file that the app serves. */
  async read(id: string, file: string): Promise<string> {
    const { web } = this.#stack;
    const { ports } = await this.apps.listAppPorts({ id });
    const port = typeof web === "number" ? web : ports.find(({ name }) => name === web)?.port;
    assert.ok(port !== undefined, `${String(web)} is missing in ${ports.map(({ name }) => name).join(", ")}`);
    let text = "";
    await eventually(async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/${file}`);
      assert.equal(answer.status, 200);
      text = (await answer.text()).trim();
    }, 60_000);
    return text;
  }
}

/** Containers and volumes on the engine whose name contains `part`. */
async function namesLike(part: string): Promise<string[]> {
  const containers = (await engineNow().request("GET", "/containers/json?all=1")).expect(200) as {
    Names: string[];
  }[];
  const { Volumes: volumes } = (await engineNow().request("GET", "/volumes")).expect(200) as {
    Volumes: { Name: string }[] | null;
  };
  const names = [...containers.flatMap(({ Names }) => Names), ...(volumes ?? []).map(({ Name }) => Name)];
  return names.filter((name) => name.includes(part));
}

/** Each stack is installed, upgraded, backed up, restored, cloned and removed, and keeps its data. */
export function testStacks(stacks: readonly PopularStack[]): void {
  for (const stack of stacks) {
    for (const [whose, uid] of [
      ["root", 0],
      ["a regular user", nobody],
    ] as const) {
      if (uid !== 0 && stack.forRoot !== undefined) continue;
      const lacks =
        stack.isPrivileged === true && !hasAllCapabilities ? " (skipped: needs all capabilities)" : "";
      const runTest = lacks === "" ? stackTest : test.skip;
      runTest(
        `${stack.id} of ${whose} keeps its data through its whole life${skipped || lacks}`,
        async (t) => {
          t.timeout(20 * 60_000);
          await using daemon = await startDaemon({ config: configNow() });
          await using connection = uid === nobody ? await daemon.as(nobody) : undefined;
          const life = new Life(connection ?? daemon, stack);
          const { apps, backups } = life;
          for (const name of stack.networks ?? [])
            await engineNow().request("POST", "/networks/create", { Name: name });
          const repository = join(daemon.dir, stack.id);
          await publish(repository, stack, { uid, revision: 1 });
          const settings = { ...stack.settings, ...(uid === nobody && stack.userSettings) };
          const { id } = await apps.installApp({
            spec: `file://${repository}`,
            settings,
            permissionsAck: true,
          });
          await life.start(id);
          const born = await life.read(id, "born");
          t.is(await life.read(id, "revision"), "1");

          await publish(repository, stack, { uid, revision: 2 });
          await apps.upgradeApp({ id, stopApp: true });
          await life.expectUp(id);
          t.is(await life.read(id, "revision"), "2");
          t.is(await life.read(id, "born"), born);

          const [made] = (await backups.createBackup({ appId: id, mode: "stop" })).results;
          const ref = { appId: id, storage: "local", name: made?.name ?? "" };
          await life.expectUp(id);
          const starts = await life.read(id, "starts");
          t.true((await backups.restoreBackup({ ...ref, stopApp: true })).restarted);
          await life.expectUp(id);
          t.is(await life.read(id, "born"), born);
          t.is(await life.read(id, "starts"), starts, "the start after the backup is undone");

          const isOnHost = typeof stack.web === "number";
          if (isOnHost) await apps.stopApp({ id });
          const clone = await apps.cloneApp({ id });
          const restored = await backups.restoreBackup({ ...ref, asNew: true });
          for (const copy of [clone.id, restored.appId]) {
            const { values } = await apps.getAppSettings({ id: copy });
            if (stack.copySettings !== undefined)
              await apps.updateAppSettings({ id: copy, values: { ...values, ...stack.copySettings } });
            await life.start(copy);
            t.is(await life.read(copy, "born"), born, copy);
            await apps.removeApp({ id: copy });
          }
          if (isOnHost) await life.start(id);
          t.is(await life.read(id, "born"), born);
          await apps.removeApp({ id });
          t.deepEqual((await apps.listApps({})).apps, []);
          t.deepEqual(await namesLike(`svc-${stack.id}`), []);
        },
      );
    }
  }

  for (const stack of stacks.filter(({ forRoot }) => forRoot !== undefined)) {
    stackTest(`${stack.id} of a regular user is rejected before the install${skipped}`, async (t) => {
      await using daemon = await startDaemon({ config: configNow() });
      await using connection = await daemon.as(nobody);
      const apps = connection.client(AppService);
      const repository = join(daemon.dir, stack.id);
      await publish(repository, stack, { uid: nobody, revision: 1 });
      const error = await errorOf(
        apps.installApp({
          spec: `file://${repository}`,
          settings: { ...stack.settings, ...stack.userSettings },
          permissionsAck: true,
        }),
      );
      t.regex(error.message, stack.forRoot ?? /$^/);
      t.deepEqual((await apps.listApps({})).apps, []);
    });
  }
}
