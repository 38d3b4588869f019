/** The life of self-hosted stacks on a real engine, for the test files that each have some of the stacks. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdir } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { findCompose } from "../../src/authoring/compose-program.ts";
import { planManifest } from "../../src/authoring/derive.ts";
import { PackageFiles } from "../../src/authoring/package-files.ts";
import { composeGenerations, type ComposeGeneration } from "./compose-generations.ts";
import { sharedDaemon } from "./daemon-test.ts";
import { isRoot, startDaemon, type TestDaemon, type UserConnection } from "./daemon.ts";
import { needsDocker, sharedEngine } from "./docker-test.ts";
import { whyNoDocker } from "./docker.ts";
import { errorOf } from "./errors.ts";
import { eventually } from "./eventually.ts";
import { writeFiles } from "./packages.ts";
import type { PopularStack } from "./popular-stacks.ts";
import { changeData, markData, type DataMarks } from "./stack-data.ts";
import { boundedRuntime, canBePrivileged, makeMedia, supplyDevices } from "./stack-host.ts";

const run = promisify(execFile);
const nobody = 65534;
const isLong = process.env["SVC_LONG"] !== undefined;
/** For titles of lives that repeat what other lives show. */
const longOnly = isLong ? "" : " (skipped: takes minutes: SVC_LONG=1)";
const engineNow = sharedEngine({ arguments: await boundedRuntime() });

const generationOf = (isClassic: boolean): ComposeGeneration => {
  const found = composeGenerations.find((each) => each.isClassic === isClassic);
  assert.ok(found !== undefined);
  return found;
};
const current = generationOf(false);
const classic = generationOf(true);

/** One at a time: they share an engine, which is empty afterwards. */
const testOf = ({ missing }: ComposeGeneration): typeof test.skip =>
  whyNoDocker === undefined && missing === "" ? test.serial : test.skip;
const skipOf = ({ missing }: ComposeGeneration): string => needsDocker || missing;

test.before(async () => {
  if (whyNoDocker === undefined) await engineNow().images.build("svc/stack:1");
});

/** For installs with docker-compose 1.29 that are not started. */
const classicDaemon = sharedDaemon(() => (whyNoDocker === undefined ? { config: configFor(classic) } : {}));

function configFor({ dirs }: ComposeGeneration): string {
  return `${engineNow().config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`;
}

/** Replaces the engine's socket, and `OWN_NETWORK_n` by the start of an address in its range. */
function ofEngine(text: string): string {
  const { socket, pool } = engineNow();
  const [first = "", second = "", third = ""] = pool.split(".");
  return text
    .replaceAll("ENGINE_SOCKET", socket)
    .replaceAll(/OWN_NETWORK_(\d)/g, (_, n) => `${first}.${second}.${Number(third) + Number(n)}`);
}

/** Writes a version of the package as a repository of the user, whose tags are its versions. */
async function publish(
  directory: string,
  { compose, files = {}, manifest = ["", ""] }: PopularStack,
  { uid, revision, generation }: { uid: number; revision: number; generation: ComposeGeneration },
): Promise<void> {
  for (const file of Object.keys(files)) await mkdir(join(directory, dirname(file)), { recursive: true });
  const texts = Object.entries({ ...files, "compose.yaml": compose }).map(([path, text]) => [
    path,
    ofEngine(text).replaceAll("REVISION", String(revision)),
  ]);
  await writeFiles(directory, Object.fromEntries(texts) as Record<string, string>);
  for (const file of Object.keys(files)) if (file.endsWith(".sh")) await chmod(join(directory, file), 0o755);
  const env = { PATH: generation.dirs.join(delimiter) };
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

  /** A backup warns about data in volumes without a name, which it does not contain. */
  async backUp(
    t: ExecutionContext,
    id: string,
    { anonymous }: DataMarks,
    mode: "live" | "stop",
  ): Promise<{ appId: string; storage: string; name: string }> {
    const { results, warnings } = await this.backups.createBackup({ appId: id, mode });
    for (const place of anonymous) {
      const [service = "", directory = ""] = place.split(" ");
      const isNamed = warnings.some((text) => text.includes(`${directory} of service "${service}"`));
      t.true(isNamed, `${place} is missing in ${warnings.join("; ")}`);
    }
    await this.expectUp(id);
    return { appId: id, storage: "local", name: results[0]?.name ?? "" };
  }

  async remove(t: ExecutionContext, id: string): Promise<void> {
    await this.apps.removeApp({ id });
    t.deepEqual((await this.apps.listApps({})).apps, []);
    t.deepEqual(await namesLike(`svc-${this.#stack.id}`), []);
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

const owners = [
  ["root", 0],
  ["a regular user", nobody],
] as const;

const returns = ["restore", "clone", "restore as new"] as const;
type Return = (typeof returns)[number];

interface Person {
  readonly uid: number;
  readonly generation: ComposeGeneration;
}

/**
 * Each stack is installed, upgraded, backed up, restored or copied, and removed, and keeps its data. Root's life of a stack
 * that a regular user can install, too, needs `SVC_LONG=1`.
 */
export function testStacks(stacks: readonly PopularStack[]): void {
  for (const [at, stack] of stacks.entries()) {
    for (const [whose, uid] of owners) {
      if (uid !== 0 && stack.forRoot !== undefined) continue;
      const isRepeat = uid === 0 && stack.forRoot === undefined;
      const lacks =
        isRepeat && !isLong
          ? longOnly
          : stack.isPrivileged === true && !canBePrivileged
            ? " (skipped: lacks capabilities)"
            : "";
      const runTest = lacks === "" ? testOf(current) : test.skip;
      runTest(
        `${stack.id} of ${whose} keeps its data through its whole life${skipOf(current) || lacks}`,
        (t) => liveWhole(t, stack, { uid, generation: current }, returnsOf(stack, at)),
      );
    }
    const { forRoot } = stack;
    if (forRoot === undefined) continue;
    testOf(current)(
      `${stack.id} of a regular user is rejected before the install${skipOf(current)}`,
      async (t) => {
        await using daemon = await startDaemon({ config: configFor(current) });
        await using connection = await daemon.as(nobody);
        const apps = connection.client(AppService);
        const person = { uid: nobody, generation: current };
        const error = await errorOf(install(daemon, apps, stack, person));
        t.regex(error.message, forRoot);
        t.deepEqual((await apps.listApps({})).apps, []);
      },
    );
  }
}

/**
 * With docker-compose 1.29, each stack is installed, or the limit is stated before the install. Those that show a kind
 * of their own, or with `SVC_LONG=1` all, are also started, backed up, restored and removed, and keep their data.
 */
export function testClassicStacks(stacks: readonly PopularStack[]): void {
  for (const stack of stacks) {
    const { classicLimit } = stack;
    const [whose, uid] = owners[stack.forRoot === undefined ? 1 : 0];
    const person = { uid, generation: classic };
    if (classicLimit !== undefined) {
      testOf(classic)(
        `${stack.id} is beyond docker-compose 1.29, which svc states before the install${skipOf(classic)}`,
        async (t) => {
          const daemon = await classicDaemon();
          const error = await errorOf(
            install(daemon, daemon.client(AppService), stack, { ...person, uid: 0 }),
          );
          t.regex(error.message, classicLimit);
        },
      );
      continue;
    }
    const lacks = stack.isPrivileged === true && !canBePrivileged ? " (skipped: lacks capabilities)" : "";
    const runTest = lacks === "" ? testOf(classic) : test.skip;
    if (stack.livesClassic === true || isLong)
      runTest(
        `${stack.id} of ${whose} keeps its data with docker-compose 1.29${skipOf(classic) || lacks}`,
        (t) => liveShort(t, stack, person),
      );
    else
      runTest(
        `${stack.id} of ${whose} is installed with docker-compose 1.29${skipOf(classic) || lacks}`,
        async (t) => {
          const daemon = await classicDaemon();
          await using connection = uid === nobody ? await daemon.as(nobody) : undefined;
          const apps = (connection ?? daemon).client(AppService);
          const id = await install(daemon, apps, stack, person);
          t.like(await apps.getApp({ id }), { state: "STOPPED", operation: undefined });
        },
      );
  }
}

/**
 * How a stack's data are brought back: each way on every third stack, a clone if a copy needs other settings, and all
 * with `SVC_LONG=1`.
 */
function returnsOf({ copySettings }: PopularStack, at: number): readonly Return[] {
  if (isLong) return returns;
  const way = copySettings === undefined ? returns[at % returns.length] : "clone";
  return way === undefined ? [] : [way];
}

async function install(
  daemon: TestDaemon,
  apps: Life["apps"],
  stack: PopularStack,
  person: Person,
): Promise<string> {
  for (const name of stack.networks ?? [])
    // Without `CheckDuplicate`, older engines create a second network of the same name.
    await engineNow().request("POST", "/networks/create", { Name: name, CheckDuplicate: true });
  const repository = join(daemon.dir, stack.id);
  await publish(repository, stack, { ...person, revision: 1 });
  const settings = {
    ...stack.settings,
    ...(person.uid === nobody && stack.userSettings),
    ...(stack.mediaSetting !== undefined && { [stack.mediaSetting]: await makeMedia(daemon.dir) }),
  };
  const { id } = await apps.installApp({ spec: `file://${repository}`, settings, permissionsAck: true });
  return id;
}

/** Install, edit and upgrade, backup, restore or copies, and removal. */
async function liveWhole(
  t: ExecutionContext,
  stack: PopularStack,
  person: Person,
  ways: readonly Return[],
): Promise<void> {
  t.timeout(20 * 60_000);
  await using _devices = await supplyDevices(stack.devices ?? []);
  await using daemon = await startDaemon({ config: configFor(person.generation) });
  await using connection = person.uid === nobody ? await daemon.as(nobody) : undefined;
  const life = new Life(connection ?? daemon, stack);
  const { apps, backups } = life;
  const store = join(daemon.storeDir, "apps");
  const marksOf = (app: string): Promise<DataMarks> => markData(engineNow(), app, store);
  const id = await install(daemon, apps, stack, person);
  await life.start(id);
  const born = await life.read(id, "born");
  t.is(await life.read(id, "revision"), "1");
  const marks = await marksOf(id);

  await publish(join(daemon.dir, stack.id), stack, { ...person, revision: 2 });
  await apps.upgradeApp({ id, stopApp: true });
  await life.expectUp(id);
  t.is(await life.read(id, "revision"), "2");
  t.is(await life.read(id, "born"), born);
  t.deepEqual((await marksOf(id)).all, marks.all, "the data of all services stay at an upgrade");

  // Nothing writes meanwhile, and a stop would start all containers again, which takes most of the time.
  const ref = await life.backUp(t, id, marks, "live");
  if (ways.includes("restore")) {
    const starts = await life.read(id, "starts");
    await changeData(engineNow(), id, store);
    t.true((await backups.restoreBackup({ ...ref, stopApp: true })).restarted);
    await life.expectUp(id);
    t.is(await life.read(id, "born"), born);
    t.is(await life.read(id, "starts"), `${starts}\nstart`, "the restore starts it once");
    t.deepEqual((await marksOf(id)).kept, marks.kept, "the data of all services are restored");
  }

  const copies = ways.filter((way) => way !== "restore");
  const isOnHost = typeof stack.web === "number" && copies.length > 0;
  if (isOnHost) await apps.stopApp({ id });
  for (const way of copies) {
    const copy =
      way === "clone"
        ? (await apps.cloneApp({ id })).id
        : (await backups.restoreBackup({ ...ref, asNew: true })).appId;
    const { values } = await apps.getAppSettings({ id: copy });
    const { copySettings } = stack;
    if (copySettings !== undefined) {
      const changed = JSON.parse(ofEngine(JSON.stringify(copySettings))) as typeof copySettings;
      await apps.updateAppSettings({ id: copy, values: { ...values, ...changed } });
    }
    await life.start(copy);
    t.is(await life.read(copy, "born"), born, copy);
    t.deepEqual((await marksOf(copy)).kept, marks.kept, `${copy} has the data of all services`);
    await apps.removeApp({ id: copy });
  }
  if (isOnHost) await life.start(id);
  t.is(await life.read(id, "born"), born);
  await life.remove(t, id);
}

/** Install, backup, restore and removal. */
async function liveShort(t: ExecutionContext, stack: PopularStack, person: Person): Promise<void> {
  t.timeout(20 * 60_000);
  await using _devices = await supplyDevices(stack.devices ?? []);
  await using daemon = await startDaemon({ config: configFor(person.generation) });
  await using connection = person.uid === nobody ? await daemon.as(nobody) : undefined;
  const life = new Life(connection ?? daemon, stack);
  const store = join(daemon.storeDir, "apps");
  const id = await install(daemon, life.apps, stack, person);
  await life.start(id);
  const born = await life.read(id, "born");
  const marks = await markData(engineNow(), id, store);
  const ref = await life.backUp(t, id, marks, "stop");
  await changeData(engineNow(), id, store);
  t.true((await life.backups.restoreBackup({ ...ref, stopApp: true })).restarted);
  await life.expectUp(id);
  t.is(await life.read(id, "born"), born);
  t.deepEqual((await markData(engineNow(), id, store)).kept, marks.kept);
  await life.remove(t, id);
}
