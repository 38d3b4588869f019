/** Killed daemons and helpers in the middle of file operations. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { chown, lstat, mkdir, readFile, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import test, { type ExecutionContext } from "ava";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import {
  failureOf,
  helperOf,
  leftOvers,
  testMs,
  uploadingHelperOf,
  waitMs,
} from "../../files/support/deaths.ts";
import { type Ground, ownerUid } from "../../files/support/ground.ts";
import { sharedGround } from "../../files/support/shared-ground.ts";
import { isRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";

// Kills in the middle of each writing operation: each file is either unchanged or finished, the operation can be
// repeated, and nothing else is left.

const rootTest = isRoot ? test.serial : test.skip;
const newGround = sharedGround();
const bigBytes = 200 << 20;
const randomBytes = 16 << 20;
/** Enough files that the operation rarely finishes before the kill; if it does, the kill is repeated. */
const manyFiles = 8_000;
/** Fewer files for those that must be on a disk, where creating and removing them is slower. */
const fewerFiles = 2_400;
/** The number of attempts to hit the middle. */
const maxTries = 5;
/** Deep enough that it takes a while: each level is resolved from the root. */
const deepPath = "d/".repeat(400).slice(0, -1);

interface Scene {
  ground: Ground;
  files: Client<typeof FileService>;
  /** Both belong to the owner, one on a disk and one in memory. */
  home: string;
  away: string;
}

interface Verb {
  /** Runs a shell as the owner, in their home. */
  prepare: string;
  /** On a disk, creating many files soon after removing many takes most of the test's time. */
  isInMemory?: true;
  work: (scene: Scene) => Promise<unknown>;
  /** Throws or returns false while the operation has not started. */
  isUnderWay: (scene: Scene) => boolean | Promise<boolean>;
  /** Whether a short operation finished before the kill; then the kill is repeated. */
  isOver?: (scene: Scene) => boolean | Promise<boolean>;
  check: (t: ExecutionContext, scene: Scene) => Promise<void>;
}

const makeMany = (files: number): string =>
  `mkdir -p many; cd many; mkdir $(seq 40); files=$(seq ${files / 40}); for n in $(seq 40); do for file in $files; do : > $n/$file; done; done; chmod -R u=rwX,go= .`;
const many = makeMany(manyFiles);
const bigOf = (source: string, bytes: number): string =>
  `mkdir tree; head -c ${bytes} ${source} > tree/big; echo small > tree/small`;

const modeOf = (path: string): number => statSync(path).mode & 0o777;

async function entriesOf(dir: string): Promise<string[]> {
  return (await readdir(dir, { recursive: true })).map((name) => join(dir, name));
}

async function modesIn(dir: string): Promise<number[]> {
  return (await entriesOf(dir)).map(modeOf);
}

const verbs: Readonly<Record<string, Verb>> = {
  "move to another file system": {
    prepare: bigOf("/dev/zero", bigBytes),
    work: ({ files, home, away }) => files.movePath({ from: join(home, "tree"), to: join(away, "tree") }),
    isUnderWay: async ({ away }) => {
      const [stage] = await leftOvers(away);
      return stage !== undefined && (await stat(join(away, stage, "new/big"))).size > 0;
    },
    isOver: ({ away }) => existsSync(join(away, "tree")),
    check: async (t, { home, away, files }) => {
      t.is((await stat(join(home, "tree/big"))).size, bigBytes);
      t.is(await readFile(join(home, "tree/small"), "utf8"), "small\n");
      t.deepEqual(await readdir(away), []);
      await files.movePath({ from: join(home, "tree"), to: join(away, "tree") });
      t.deepEqual((await readdir(join(away, "tree"))).sort(), ["big", "small"]);
      t.deepEqual(await readdir(home), []);
    },
  },
  "removing half of a move to another file system": {
    prepare: makeMany(fewerFiles),
    work: ({ files, home, away }) => files.movePath({ from: join(home, "many"), to: join(away, "many") }),
    isUnderWay: ({ home }) => !firstFiles(home).every((path) => existsSync(path)),
    isOver: ({ home }) => !existsSync(join(home, "many")),
    check: async (t, { home, away, files }) => {
      const whole = await entriesOf(join(away, "many"));
      t.is(whole.length, fewerFiles + 40);
      for (const path of whole) assert.ok([0o600, 0o700].includes(modeOf(path)));
      const left = await entriesOf(join(home, "many"));
      t.true(left.length > 40 && left.length < fewerFiles + 40, `${left.length} left`);
      t.deepEqual((await files.deletePaths({ paths: [join(home, "many")] })).failed, []);
      t.deepEqual(await readdir(home), []);
    },
  },
  archive: {
    // An operation that takes long and cannot be made smaller.
    prepare: `${bigOf("/dev/urandom", randomBytes)}; echo old > target.tar.gz`,
    work: ({ files, home }) => files.createArchive(archiveOf(home)),
    isUnderWay: async ({ ground, home }) => (await uploadingHelperOf(ground, home)) > 0,
    isOver: ({ home }) => statSync(join(home, "target.tar.gz")).size > 10,
    check: async (t, { home, files }) => {
      t.is(await readFile(join(home, "target.tar.gz"), "utf8"), "old\n");
      t.deepEqual((await readdir(home)).sort(), ["target.tar.gz", "tree"]);
      await files.createArchive(archiveOf(home));
      t.true((await stat(join(home, "target.tar.gz"))).size > randomBytes);
    },
  },
  "change of modes": {
    prepare: many,
    isInMemory: true,
    work: ({ files, home }) =>
      files.setPathAttributes({ path: join(home, "many"), mode: "0755", recursive: true }),
    isUnderWay: ({ home }) => firstFiles(home).some((path) => modeOf(path) === 0o755),
    isOver: async ({ home }) => (await modesIn(join(home, "many"))).every((mode) => mode === 0o755),
    check: async (t, { home, files }) => {
      const modes = await modesIn(join(home, "many"));
      t.is(modes.length, manyFiles + 40);
      const changed = modes.filter((mode) => mode === 0o755).length;
      const kept = modes.filter((mode) => mode === 0o600 || mode === 0o700).length;
      t.is(changed + kept, modes.length);
      t.true(changed > 0 && kept > 0, `${changed} changed, ${kept} kept`);
      await files.setPathAttributes({ path: join(home, "many"), mode: "0755", recursive: true });
      t.true((await modesIn(join(home, "many"))).every((mode) => mode === 0o755));
    },
  },
  deletion: {
    prepare: `${many}; echo mine > ../kept`,
    isInMemory: true,
    work: ({ files, home }) => files.deletePaths({ paths: [join(home, "many")] }),
    isUnderWay: ({ home }) => !firstFiles(home).every((path) => existsSync(path)),
    isOver: ({ home }) => !existsSync(join(home, "many")),
    check: async (t, { home, files }) => {
      const left = await entriesOf(join(home, "many"));
      t.true(left.length > 40 && left.length < manyFiles + 40, `${left.length} left`);
      for (const path of left) assert.ok([0o600, 0o700].includes(modeOf(path)));
      t.deepEqual((await files.deletePaths({ paths: [join(home, "many")] })).failed, []);
      t.deepEqual(await readdir(home), ["kept"]);
    },
  },
  "making of directories": {
    prepare: "true",
    work: ({ files, home }) => files.createDirectory({ path: join(home, deepPath), parents: true }),
    isUnderWay: ({ home }) => existsSync(join(home, "d/d/d")),
    isOver: ({ home }) => existsSync(join(home, deepPath)),
    check: async (t, { home, files }) => {
      for (let dir = join(home, "d"); existsSync(dir); dir = join(dir, "d")) {
        const { uid, mode } = await lstat(dir);
        assert.deepEqual([uid, mode & 0o7777], [ownerUid, 0o755]);
      }
      await files.createDirectory({ path: join(home, deepPath), parents: true });
      t.true(existsSync(join(home, deepPath)));
    },
  },
};

function archiveOf(home: string) {
  return { paths: [join(home, "tree")], target: join(home, "target.tar.gz"), overwrite: true };
}

/** One file in each of many directories; in any order, the operation soon reaches one. */
function firstFiles(home: string): string[] {
  return Array.from({ length: 40 }, (_, index) => join(home, "many", String(index + 1), "1"));
}

/** Polls often, because some operations finish soon, perhaps between two polls. */
async function untilUnderWay(scene: Scene, { isUnderWay, isOver }: Verb): Promise<void> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    // The polled files appear and disappear.
    if (
      await Promise.resolve(scene)
        .then(isUnderWay)
        .catch(() => false)
    )
      return;
    if ((await isOver?.(scene)) === true) return;
    assert.ok(performance.now() < deadline, "has not begun");
    await wait(1);
  }
}

for (const victim of ["helper", "daemon"] as const) {
  for (const [name, verb] of Object.entries(verbs)) {
    rootTest(`a ${victim} that is killed during ${name} leaves no partial result`, async (t) => {
      t.timeout(testMs);
      for (let tries = 0; !(await hasDied(t, victim, verb)); tries++)
        assert.ok(tries < maxTries, "was over before each kill");
    });
  }
}

/** @returns false if the operation finished before the kill */
async function hasDied(t: ExecutionContext, victim: "helper" | "daemon", verb: Verb): Promise<boolean> {
  const { prepare, isInMemory, work, isOver, check } = verb;
  const ground = await newGround();
  const { home: onDisk, connection, daemon, as } = ground;
  const inMemory = `/dev/shm/svc-deaths-${process.pid}`;
  const [home, away] = isInMemory === true ? [inMemory, onDisk] : [onDisk, inMemory];
  await mkdir(inMemory);
  try {
    await chown(inMemory, ownerUid, 60);
    await as(ownerUid, "sh", "-c", `cd ${home}; ${prepare}`);
    const scene = { ground, home, away, files: connection.client(FileService, "grpc") };
    // Starts the helper process that the test kills.
    await scene.files.statPath({ path: home });
    const helper = await helperOf(ground);
    const working = work(scene);
    working.catch(() => undefined);
    await untilUnderWay(scene, verb);
    if (victim === "helper") process.kill(helper, "SIGKILL");
    else {
      // On a busy host a daemon dies slowly, so its helper process could finish the operation.
      process.kill(helper, "SIGSTOP");
      await daemon.kill();
      process.kill(helper, "SIGCONT");
    }
    if ((await isOver?.(scene)) === true) return false;
    await failureOf(working);
    if (victim === "daemon") await daemon.restart();
    for (const dir of [home, away]) {
      await eventually(async () => assert.deepEqual(await leftOvers(dir), []), waitMs);
    }
    // The helper process of a killed daemon runs until it notices the kill.
    await eventually(() => assert.ok(!existsSync(`/proc/${helper}`)), waitMs);
    if ((await isOver?.(scene)) === true) return false;
    await check(t, { ...scene, files: connection.client(FileService, "grpc") });
    for (const dir of [home, away]) t.deepEqual(await leftOvers(dir), []);
    return true;
  } finally {
    await rm(inMemory, { recursive: true, force: true });
  }
}

// Kills in the middle of copies, uploads and unpacking: each file is either unchanged or finished, and nothing
// else is left.

const hugeBytes = 400 << 20;
for (const victim of ["helper", "daemon"] as const) {
  rootTest(`a ${victim} that is killed during a copy and an upload leaves only the old files`, async (t) => {
    t.timeout(testMs);
    const ground = await newGround();
    const { home, connection, daemon, as } = ground;
    await as(
      ownerUid,
      "sh",
      "-c",
      `cd ${home}; mkdir tree; echo old > target; mkdir kept; echo old > kept/f`,
    );
    execFileSync("sh", [
      "-c",
      `head -c ${hugeBytes} /dev/zero > ${home}/tree/big; chown -R ${ownerUid}:60 ${home}`,
    ]);
    const files = connection.client(FileService, "grpc");
    const kill = async (helper: number): Promise<void> => {
      if (victim === "helper") process.kill(helper, "SIGKILL");
      else await daemon.kill();
    };
    const copying = files.copyPath({ from: join(home, "tree"), to: join(home, "kept"), overwrite: true });
    copying.catch(() => undefined);
    await eventually(async () => {
      const [stage] = await leftOvers(home);
      assert.ok(stage);
      assert.ok((await stat(join(home, stage, "new/big"))).size > 0);
    }, waitMs);
    await kill(await helperOf(ground));
    await failureOf(copying);
    await eventually(async () => assert.deepEqual(await leftOvers(home), []), waitMs);
    t.deepEqual(await readdir(join(home, "kept")), ["f"]);
    if (victim === "daemon") await daemon.restart();

    const { promise: goOn, resolve } = Promise.withResolvers<undefined>();
    const again = connection.client(FileService, "grpc");
    const uploading = again.writeFile(
      (async function* () {
        yield {
          path: join(home, "target"),
          overwrite: true,
          content: { contentType: "", data: Buffer.alloc(200_000) },
        };
        await goOn;
        yield { content: { contentType: "", data: Buffer.from("never") } };
      })(),
    );
    uploading.catch(() => undefined);
    // Kills more than one helper process: one that dies before its operation starts is replaced, and the upload
    // continues.
    await kill(await eventually(() => uploadingHelperOf(ground, home), waitMs));
    await failureOf(uploading).finally(() => resolve(undefined));
    t.is(await readFile(join(home, "target"), "utf8"), "old\n");
    t.deepEqual((await readdir(home)).sort(), ["kept", "target", "tree"]);
  });
}

for (const verb of ["copy", "unpack"] as const) {
  rootTest(
    `the remains of ${verb === "copy" ? "a copy" : "an unpacking"} whose daemon and helper are killed together are removed at the next start`,
    async (t) => {
      t.timeout(testMs);
      const ground = await newGround();
      const { home, connection, daemon, as } = ground;
      const script = `cd ${home}; mkdir tree into; echo mine > .svc-0123456789abcdef.tmp; head -c ${hugeBytes} /dev/zero > tree/big; tar cf tree.tar tree`;
      await as(ownerUid, "sh", "-c", script);
      const files = connection.client(FileService, "grpc");
      const path = join(home, "tree.tar");
      const working =
        verb === "copy"
          ? files.copyPath({ from: join(home, "tree"), to: join(home, "copy") })
          : files.extractArchive({ path, target: join(home, "into") });
      working.catch(() => undefined);
      const dir = verb === "copy" ? home : join(home, "into");
      const left = async () => (await leftOvers(dir)).filter((name) => name !== ".svc-0123456789abcdef.tmp");
      await eventually(async () => assert.equal((await left()).length, 1), waitMs);
      const helper = await helperOf(ground);
      process.kill(helper, "SIGSTOP");
      await daemon.kill();
      process.kill(helper, "SIGKILL");
      await failureOf(working);
      t.is((await left()).length, 1);
      await daemon.restart();
      await eventually(async () => assert.deepEqual(await left(), []), waitMs);
      // The daemon does not touch directories that it did not record.
      t.deepEqual((await readdir(home)).sort(), [".svc-0123456789abcdef.tmp", "into", "tree", "tree.tar"]);
    },
  );
}
