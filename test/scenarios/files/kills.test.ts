/**
 * Kills in the middle of copies, uploads and unpacking: each file is either unchanged or finished, and nothing else is
 * left.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { isRoot } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import {
  failureOf,
  helperOf,
  leftOvers,
  testMs,
  uploadingHelperOf,
  waitMs,
} from "../../files/support/deaths.ts";
import { ownerUid } from "../../files/support/ground.ts";
import { sharedGround } from "../../files/support/shared-ground.ts";

const rootTest = isRoot ? test : test.skip;
const newGround = sharedGround();
const bigBytes = 400 << 20;
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
      `head -c ${bigBytes} /dev/zero > ${home}/tree/big; chown -R ${ownerUid}:60 ${home}`,
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
      const script = `cd ${home}; mkdir tree into; echo mine > .svc-0123456789abcdef.tmp; head -c ${bigBytes} /dev/zero > tree/big; tar cf tree.tar tree`;
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
