/**
 * Deaths in the middle of each verb that writes: each thing is as it was or as it should be, what was begun can be done again,
 * and nothing else is left (T 45). Copies, uploads and unpacking: `kills.test.ts`.
 */
import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { chown, lstat, mkdir, readFile, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type { Client } from "@connectrpc/connect";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { failureOf, helperOf, leftOvers, testMs, uploadingHelperOf, waitMs } from "./support/deaths.ts";
import { ownerUid, type Ground } from "./support/ground.ts";
import { sharedGround } from "./support/shared-ground.ts";

const rootTest = isRoot ? test.serial : test.skip;
const newGround = sharedGround();
const bigBytes = 200 << 20;
const randomBytes = 16 << 20;
/** So many that the work is hardly ever over before the kill; when it is, the death is tried again. */
const manyFiles = 8_000;
/** Of what has to be on a disk, where each is made among those that went before, and takes longer to go. */
const fewerFiles = 2_400;
/** Deaths of which one has to come in the middle. */
const maxTries = 5;
/** Deep enough that making it takes a while: each level is found again from the root. */
const deepPath = "d/".repeat(400).slice(0, -1);

interface Scene {
  ground: Ground;
  files: Client<typeof FileService>;
  /** Both of the owner, one on a disk and one in memory. */
  home: string;
  away: string;
}

interface Verb {
  /** Shell of the owner, in their home. */
  prepare: string;
  /** On a disk many files are sought places for among those that went a minute ago, which would take most of the test. */
  isInMemory?: true;
  work: (scene: Scene) => Promise<unknown>;
  /** Throws, or answers false, while the work has not begun. */
  isUnderWay: (scene: Scene) => boolean | Promise<boolean>;
  /** Whether the work was over before the kill, of what is soon done; then the death is tried again. */
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
    // What cannot be made smaller takes long.
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

/** One of each directory of many; whatever the order, the work comes to one of them soon. */
function firstFiles(home: string): string[] {
  return Array.from({ length: 40 }, (_, index) => join(home, "many", String(index + 1), "1"));
}

/** Looks often: some of the work is soon over, perhaps between two looks. */
async function untilUnderWay(scene: Scene, { isUnderWay, isOver }: Verb): Promise<void> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    // What it looks at comes and goes.
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
    rootTest(`a ${victim} that is killed in the ${name} leaves nothing half done`, async (t) => {
      t.timeout(testMs);
      for (let tries = 0; !(await hasDied(t, victim, verb)); tries++)
        assert.ok(tries < maxTries, "was over before each kill");
    });
  }
}

/** @returns false when the work was over before */
async function hasDied(t: ExecutionContext, victim: "helper" | "daemon", verb: Verb): Promise<boolean> {
  const { prepare, isInMemory, work, isOver, check } = verb;
  const ground = await newGround();
  const { home: onDisk, door, daemon, as } = ground;
  const inMemory = `/dev/shm/svc-deaths-${process.pid}`;
  const [home, away] = isInMemory === true ? [inMemory, onDisk] : [onDisk, inMemory];
  await mkdir(inMemory);
  try {
    await chown(inMemory, ownerUid, 60);
    await as(ownerUid, "sh", "-c", `cd ${home}; ${prepare}`);
    const scene = { ground, home, away, files: door.client(FileService, "grpc") };
    // So that there is a helper to be killed.
    await scene.files.statPath({ path: home });
    const helper = await helperOf(ground);
    const working = work(scene);
    working.catch(() => undefined);
    await untilUnderWay(scene, verb);
    if (victim === "helper") process.kill(helper, "SIGKILL");
    else {
      // A daemon takes its time to die on a busy machine, in which its helper would come to the end of the work.
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
    // The helper of a daemon that was killed goes on until it hears of it.
    await eventually(() => assert.ok(!existsSync(`/proc/${helper}`)), waitMs);
    if ((await isOver?.(scene)) === true) return false;
    await check(t, { ...scene, files: door.client(FileService, "grpc") });
    for (const dir of [home, away]) t.deepEqual(await leftOvers(dir), []);
    return true;
  } finally {
    await rm(inMemory, { recursive: true, force: true });
  }
}
