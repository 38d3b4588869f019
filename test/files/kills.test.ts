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

for (const verb of ["copy", "unpack"] as const) {
  rootTest(
    `what ${verb === "copy" ? "a copy" : "an unpacking"} leaves when daemon and helper die in one moment goes at the next start`,
    async (t) => {
      await using ground = await openGround();
      const { home, door, daemon, as } = ground;
      const script = `cd ${home}; mkdir tree into; echo mine > .svc-0123456789abcdef.tmp; head -c ${bigBytes} /dev/urandom > tree/big; tar cf tree.tar tree`;
      await as(ownerUid, "sh", "-c", script);
      const files = door.client(FileService, "grpc");
      const path = join(home, "tree.tar");
      const working =
        verb === "copy"
          ? files.copyPath({ from: join(home, "tree"), to: join(home, "copy") })
          : files.extractArchive({ path, target: join(home, "into") });
      working.catch(() => undefined);
      const dir = verb === "copy" ? home : join(home, "into");
      const left = async () => (await leftOvers(dir)).filter((name) => name !== ".svc-0123456789abcdef.tmp");
      await eventually(async () => assert.equal((await left()).length, 1), 30_000);
      const helper = await helperOf(ground);
      process.kill(helper, "SIGSTOP");
      await daemon.kill();
      process.kill(helper, "SIGKILL");
      await t.throwsAsync(working);
      t.is((await left()).length, 1);
      await daemon.restart();
      await eventually(async () => assert.deepEqual(await left(), []), 30_000);
      // What nobody wrote down is not the daemon's.
      t.deepEqual((await readdir(home)).sort(), [".svc-0123456789abcdef.tmp", "into", "tree", "tree.tar"]);
    },
  );
}
