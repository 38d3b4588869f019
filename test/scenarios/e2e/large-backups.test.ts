/**
 * Many small files and a large sparse one are unchanged after a restore, as compared by rsync. With `SVC_LONG=1`
 * 100,000 files and 8 GiB, otherwise a hundredth of that.
 */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, open, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../../gen/svc/v1/backup_pb.ts";
import { startDaemon } from "../../support/daemon.ts";
import { freePort, writePackage } from "../../support/packages.ts";

const run = promisify(execFile);
const isLong = process.env["SVC_LONG"] === "1";
const files = isLong ? 100_000 : 1_000;
const sparseBytes = (isLong ? 8 * 1024 : 80) * 1024 ** 2;
const filesOfDirectory = 500;
/** Data islands in the hole. The ones at the end are lost if sizes or offsets are truncated to 32 bits. */
const islands = [0.2, 0.7];

/** The changes that rsync would make to turn the second into the first. */
async function differences(from: string, to: string): Promise<string> {
  const { stdout } = await run("rsync", ["-niaHAX", "--checksum", "--delete", `${from}/`, to]);
  return stdout;
}

test(`${files.toLocaleString("en")} files and a sparse one are unchanged after a restore`, async (t) => {
  t.timeout(isLong ? 1_800_000 : 240_000);
  await using daemon = await startDaemon();
  const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
  const spec = join(daemon.dir, "package");
  await writePackage(spec, await freePort());
  const { directory } = await apps.installApp({ spec });
  const [data, before] = [join(directory, "data"), join(daemon.dir, "before")];
  for (let number = 0; number < files; number += 1) {
    const into = join(data, String(Math.floor(number / filesOfDirectory)));
    if (number % filesOfDirectory === 0) await mkdir(into);
    await writeFile(join(into, String(number)), randomBytes(number % 2_000));
  }
  const sparse = await open(join(data, "sparse"), "w");
  await sparse.truncate(sparseBytes);
  for (const at of islands) await sparse.write(randomBytes(100_000), 0, null, Math.floor(sparseBytes * at));
  await sparse.close();
  const { blocks } = await stat(join(data, "sparse"));
  await run("cp", ["--archive", "--sparse=always", data, before]);

  const { results, entries, warnings } = await backups.createBackup({ appId: "web" });
  t.deepEqual(warnings, []);
  t.true(entries > BigInt(files));
  const ref = { appId: "web", storage: "local", name: results[0]?.name ?? "" };
  t.is((await backups.verifyBackup(ref)).entries, entries);
  await rm(data, { recursive: true });
  await backups.restoreBackup(ref);

  t.is(await differences(before, data), "");
  const restored = await stat(join(data, "sparse"));
  t.true(restored.blocks <= 2 * blocks + 64, `${restored.blocks} blocks, and ${blocks} before`);
});
