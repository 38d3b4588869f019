/**
 * A daemon that is killed at any point while it creates, rotates, restores and deletes plain and encrypted archives:
 * each archive is absent or complete, the app is unchanged or restored, and the next daemon leaves no partial result.
 * `SVC_LONG=1` kills 200 times.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { hasAge, newAgeKey } from "../support/age.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { hasS3Server, startS3Server } from "../support/s3-server.ts";

const isLong = process.env["SVC_LONG"] === "1";
const kills = isLong ? 200 : 10;
const storages = ["disk", "far"];
const operations = ["create", "rotate", "restore", "delete"] as const;

interface Found {
  storage: string;
  name: string;
}

/** The store marks it as incomplete. */
function unsettled(daemon: TestDaemon): number {
  using store = new DatabaseSync(join(daemon.storeDir, "svc.db"), { readOnly: true });
  const row = store.prepare("SELECT count(*) AS n FROM backup_archives WHERE is_whole = 0").get();
  return Number(row?.["n"]);
}

test(`${kills} kills leave complete archives, and the app unchanged or restored`, async (t) => {
  t.timeout(isLong ? 3_600_000 : 300_000);
  await using stack = new AsyncDisposableStack();
  const server = hasS3Server ? stack.use(await startS3Server()) : undefined;
  await using daemon = await startDaemon();
  const backups = daemon.client(BackupService);
  const apps = daemon.client(AppService);
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const { directory } = await apps.installApp({ spec: dir });
  const notes = join(directory, "data/notes");
  await writeFile(join(directory, "data/bulk"), randomBytes(12 << 20));
  const local = (name: string) =>
    ({ name, location: { case: "local", value: { dir: join(daemon.dir, name) } } }) as const;
  await backups.upsertBackupStorage(local("disk"));
  const key = hasAge ? await newAgeKey(daemon.dir, "key.txt") : undefined;
  await backups.upsertBackupStorage({
    ...(server === undefined
      ? local("far")
      : {
          name: "far",
          location: {
            case: "s3",
            value: {
              ...{ endpoint: server.endpoint, bucket: server.bucket },
              ...{ accessKey: server.accessKey, secretKey: server.secretKey },
            },
          },
        }),
    ...(key && { recipients: [key.recipient] }),
  });
  const refOf = ({ storage, name }: Found) => ({
    ...{ appId: "web", storage, name },
    ...(key && name.endsWith(".age") && { identity: key.identity }),
  });
  /** The content of `notes` in an archive. */
  const contents = new Map<string, string>();
  let content = "0";
  const create = async (keep?: number) => {
    const { results } = await backups.createBackup({ appId: "web", storages, ...(keep && { keep }) });
    return results;
  };
  await writeFile(notes, content);
  const startMs = performance.now();
  const taken = await create();
  const tookMs = performance.now() - startMs;
  const [first] = taken;
  // The encrypted one has its own name.
  for (const { name } of taken) contents.set(name, content);
  const verifyFirst = () => backups.verifyBackup({ appId: "web", storage: "disk", name: first?.name ?? "" });
  await verifyFirst();
  const seed = randomBytes(4).readUInt32LE();
  t.log(`seed ${seed}; one backup takes ${tookMs.toFixed(0)} ms`);
  let state = seed;
  const random = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  /** It is verified last in every round and never deleted, so rotation retains it. */
  const isFirst = ({ storage, name }: Found): boolean => storage === "disk" && name === first?.name;
  const list = async (): Promise<Found[]> => (await backups.listBackups({ appId: "web" })).backups;

  for (let kill = 0; kill < kills; kill++) {
    const operation = operations[kill % operations.length] ?? "create";
    const before = await list();
    const others = before.filter((each) => !isFirst(each));
    const chosen = others[random(others.length)];
    const ref = refOf(chosen ?? { storage: "", name: "" });
    const contentBefore = content;
    if (operation === "create" || operation === "rotate") {
      content = `${kill + 1}`;
      await writeFile(notes, content);
    }
    const doing = async (): Promise<unknown> => {
      switch (operation) {
        case "create":
          return create();
        case "rotate":
          return create(1);
        case "restore":
          return backups.restoreBackup(ref);
        case "delete":
          return backups.deleteBackup(ref);
      }
    };
    const done = doing().catch(() => undefined);
    await wait(random(operation === "delete" ? 50 : tookMs * 1.2));
    await daemon.kill();
    await done;
    await daemon.restart();

    const what = `kill ${kill} in ${operation}`;
    await eventually(async () => {
      assert.equal(unsettled(daemon), 0, what);
      assert.deepEqual(await readdir(join(daemon.storeDir, "spool")), [], what);
    }, 60_000);
    const app = await eventually(async () => {
      const found = await apps.getApp({ id: "web" });
      assert.equal(found.operation, undefined, what);
      return found;
    }, 60_000);
    t.is(app.state, "STOPPED", what);
    t.deepEqual((await readdir(directory)).toSorted(), ["data", "logs", "repo", "volumes"], what);
    const after = await list();
    t.true(after.some(isFirst), `${what}: the verified one exists`);
    for (const { storage, name } of after) {
      if (!contents.has(name)) contents.set(name, content);
      if (!before.some((each) => each.storage === storage && each.name === name) || name === ref.name)
        await t.notThrowsAsync(backups.verifyBackup(refOf({ storage, name })), what);
    }
    const gone = before.filter(
      (each) => !after.some(({ storage, name }) => storage === each.storage && name === each.name),
    );
    if (operation === "create" || operation === "restore") t.deepEqual(gone, [], what);
    if (operation === "rotate" && gone.length > 0) {
      for (const { storage } of gone)
        t.true(
          after.some((each) => each.storage === storage && contents.get(each.name) === content),
          `${what}: the new one exists before an old one is removed`,
        );
    }
    if (operation === "delete") t.true(gone.length <= 1, what);
    const now = await readFile(notes, "utf8");
    if (operation === "restore")
      t.true([contentBefore, contents.get(ref.name)].includes(now), `${what}: ${now}`);
    else t.is(now, content, what);
    content = now;
    // So that the next round has something to lose.
    if (after.length < 3) {
      for (const { name } of await create()) contents.set(name, content);
    }
    await verifyFirst();
  }
});
