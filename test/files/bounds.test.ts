/** Limits of file operations, their cancellation, and the removal of their temporary files. */
import assert from "node:assert/strict";
import { mkdtempDisposable, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { SvcError } from "../../src/errors.ts";
import { FileStages } from "../../src/files/file-stages.ts";
import { copyPath } from "../../src/run-as/helper/host/relocate.mjs";
import { Syscalls } from "../../src/run-as/helper/host/syscalls.mjs";
import { Walk } from "../../src/run-as/helper/host/walk.mjs";
import type { Stage } from "../../src/run-as/host-work.ts";
import type { UserHelpers } from "../../src/run-as/user-helpers.ts";
import { currentExecutor, type Executor } from "../../src/store/executors.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";
import { isRoot } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { ownerUid } from "./support/ground.ts";
import { sharedGround } from "./support/shared-ground.ts";

// Limits of a caller's concurrent file operations, and their cancellation.

const rootTest = isRoot ? test : test.skip;
const newGround = sharedGround();
const mostCalls = 16;
const waitMs = 30_000;

rootTest("a user's concurrent file operations are limited, and nobody else waits for them", async (t) => {
  const { home, connection, daemon, as } = await newGround();
  const path = join(home, "log");
  await as(ownerUid, "sh", "-c", `echo line > ${path}`);
  const files = connection.client(FileService, "grpc");
  const left = Array.from({ length: mostCalls }, () => new AbortController());
  for (const { signal } of left) {
    const tail = files.tailFile({ path, lines: 1, follow: true }, { signal })[Symbol.asyncIterator]();
    assert.equal((await tail.next()).done, false);
    void tail.next().catch(() => undefined);
  }
  const refused = await errorOf(files.statPath({ path }));
  t.like(refused, { code: "ResourceExhausted", reason: "too_many" });
  t.regex(refused.message, /16 of your file operations are running/);
  t.is((await daemon.client(FileService).statPath({ path })).name, "log");
  left[0]?.abort();
  await eventually(async () => assert.equal((await files.statPath({ path })).name, "log"), waitMs);
  for (const each of left) each.abort();
});

rootTest("a canceled deletion leaves the rest, and so does a canceled mode change", async (t) => {
  const { home, connection, as } = await newGround();
  const files = connection.client(FileService, "grpc");
  const many = 60_000;
  await as(ownerUid, "sh", "-c", `mkdir ${home}/t; cd ${home}/t; seq ${many} | xargs touch`);
  const stop = new AbortController();
  const cut = await errorOf(
    (async () => {
      const events = files.deletePathsStream({ paths: [`${home}/t`] }, { signal: stop.signal });
      for await (const { event } of events) if (event.case === "progress") stop.abort();
    })(),
  );
  t.is(cut.code, "Canceled");
  // The helper process is notified a moment later.
  const rest = await eventually(async () => {
    const before = (await readdir(join(home, "t"))).length;
    await new Promise((resolve) => setTimeout(resolve, 500));
    const after = (await readdir(join(home, "t"))).length;
    assert.equal(after, before);
    return after;
  }, waitMs);
  t.true(rest > 0 && rest < many, `${rest} are left`);
});

test("the first thousand failures in a tree are stored, and all are counted", (t) => {
  const walk = new Walk("/tree", { leaf: () => undefined });
  const denied = Object.assign(new Error("x".repeat(10_000)), { code: "EACCES" });
  for (let count = 0; count < 1_100; count++) walk.fail(`/tree/${count}`, denied);
  t.deepEqual([walk.failures.length, walk.failureCount], [1_000, 1_100]);
  t.is(walk.failures[0]?.message.length, 256);
});

test("a canceled copy of a large file stops in the middle of it", async (t) => {
  await using place = await mkdtempDisposable(join(tmpdir(), "svc-bounds-"));
  // Another file system, so that the blocks cannot be shared.
  await using far = await mkdtempDisposable("/dev/shm/svc-bounds-");
  const piece = 1 << 20;
  await writeFile(join(far.path, "large"), Buffer.alloc(16 * piece, "x"));
  let pieces = 0;
  class InPieces extends Syscalls {
    override nextData(_fd: number, from: number, size: number) {
      pieces++;
      return from < size ? { start: from, end: from + piece } : undefined;
    }
  }
  const stop = new AbortController();
  const args = {
    ...{ from: join(far.path, "large"), to: join(place.path, "copy") },
    ...{ overwrite: false, temporary: ".svc-0.tmp" },
  };
  const copying = copyPath(new InPieces(), args, () => stop.abort(new Error("stopped")), stop.signal);
  await t.throwsAsync(copying, { message: "stopped" });
  t.true(pieces <= 2, `${pieces} pieces`);
  t.deepEqual(await readdir(place.path), []);
});

// Records of temporary files of file operations: who removes them, and when.

async function world() {
  const { store, ...rest } = await temporaryStore();
  const discarded: Stage[] = [];
  const warnings: unknown[] = [];
  const userHelpers = {
    hostFiles: (uid: number) =>
      uid === 404
        ? Promise.reject(new SvcError("not_found", "there is no such user"))
        : Promise.resolve({
            discard: (stage: Stage) => {
              discarded.push(stage);
              return Promise.resolve();
            },
          }),
  } as unknown as UserHelpers;
  const say = (...said: unknown[]): void => void warnings.push(said);
  const log = { warn: say, error: say };
  const stagesOf = (executor: Executor) => new FileStages({ store, executor, userHelpers, log });
  /** Starts another daemon over the same store; resolves when it has cleaned up. */
  const sweep = async (): Promise<void> => {
    await using stages = stagesOf(await currentExecutor());
    stages.start();
  };
  const kept = () => store.all<{ name: string }>("SELECT name FROM file_stages").map(({ name }) => name);
  return { ...rest, discarded, warnings, stagesOf, sweep, kept };
}

test("temporary files of an exited process are removed, and those of a running one are not", async (t) => {
  await using w = await world();
  const own = await currentExecutor();
  // Another process had this PID before.
  const ended = { ...own, startTicks: own.startTicks + 1 };
  const stage = (name: string, uid = 5): Stage => ({ name, uid, beside: ["/srv/a", "/srv/b/x"] });
  await w.stagesOf(ended).keep(stage("left"));
  await w.stagesOf(ended).keep(stage("nobody's", 404));
  await w.stagesOf(own).keep(stage("working"));
  await w.sweep();
  t.deepEqual(w.discarded, [stage("left")]);
  t.deepEqual(w.kept(), ["working"]);
  t.is(w.warnings.length, 1, "neither is requested again");
  await w.stagesOf(own).forget("working");
  t.deepEqual(w.kept(), []);
});
