/** Deaths in the middle of work: what was there is there as it was or as it should be, and nothing else (T 45). */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { readFile, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { openGround, ownerUid, type Ground } from "./support/ground.ts";

const rootTest = isRoot ? test : test.skip;
const bigBytes = 400 << 20;

/** The owner's helper. */
async function helperOf({ daemon }: Ground): Promise<number> {
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const status = readFileSync(`/proc/${name}/status`, "latin1");
      if (status.includes(`\nPPid:\t${daemon.pid}\n`) && status.includes(`\nUid:\t${ownerUid}\t`))
        return Number(name);
    } catch {
      // Gone meanwhile.
    }
  }
  throw new Error("the owner has no helper");
}

async function leftOvers(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => name.startsWith(".svc-"));
}

for (const victim of ["helper", "daemon"] as const) {
  rootTest(
    `a ${victim} that is killed in a copy and in an upload leaves the old and nothing else`,
    async (t) => {
      await using ground = await openGround();
      const { home, door, daemon, as } = ground;
      await as(
        ownerUid,
        "sh",
        "-c",
        `cd ${home}; mkdir tree; echo old > target; mkdir kept; echo old > kept/f`,
      );
      execFileSync("sh", [
        "-c",
        `head -c ${bigBytes} /dev/urandom > ${home}/tree/big; chown -R ${ownerUid}:60 ${home}`,
      ]);
      const files = door.client(FileService, "grpc");
      const kill = async (): Promise<void> => {
        if (victim === "helper") process.kill(await helperOf(ground), "SIGKILL");
        else await daemon.kill();
      };
      const copying = files.copyPath({ from: join(home, "tree"), to: join(home, "kept"), overwrite: true });
      copying.catch(() => undefined);
      await eventually(async () => {
        const [stage] = await leftOvers(home);
        assert.ok(stage);
        assert.ok((await stat(join(home, stage, "new/big"))).size > 0);
      }, 30_000);
      await kill();
      await t.throwsAsync(copying);
      await eventually(async () => assert.deepEqual(await leftOvers(home), []), 30_000);
      t.deepEqual(await readdir(join(home, "kept")), ["f"]);
      if (victim === "daemon") await daemon.restart();

      const { promise: goOn, resolve } = Promise.withResolvers<undefined>();
      const { promise: begun, resolve: begin } = Promise.withResolvers<undefined>();
      const again = door.client(FileService, "grpc");
      const uploading = again.writeFile(
        (async function* () {
          yield {
            path: join(home, "target"),
            overwrite: true,
            content: { contentType: "", data: Buffer.alloc(200_000) },
          };
          begin(undefined);
          await goOn;
          yield { content: { contentType: "", data: Buffer.from("never") } };
        })(),
      );
      uploading.catch(() => undefined);
      await begun;
      await eventually(async () => assert.ok(await helperOf(ground)), 30_000);
      await kill();
      await t.throwsAsync(uploading);
      resolve(undefined);
      t.is(await readFile(join(home, "target"), "utf8"), "old\n");
      t.deepEqual((await readdir(home)).sort(), ["kept", "target", "tree"]);
    },
  );
}
