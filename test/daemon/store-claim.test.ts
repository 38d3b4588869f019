/** A store has one daemon: jobs of two would fire twice, and what one starts the other would end. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { claimStore } from "../../src/daemon/store-claim.ts";
import { SvcError } from "../../src/errors.ts";
import { startDaemon } from "../support/daemon.ts";
import { main } from "../support/svc-main.ts";

test("a second daemon of a store ends with a sentence, whatever else it listens on", async (t) => {
  await using daemon = await startDaemon();
  const file = join(daemon.dir, "second.toml");
  await writeFile(
    file,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = "${join(daemon.dir, "second.sock")}"\n[store]\ndir = "${daemon.storeDir}"\n`,
  );
  const second = spawn(process.execPath, [main, "daemon", "--config", file], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  second.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
    // Nobody would end it.
    if (said.includes("svc is ready")) second.kill();
  });
  t.deepEqual(await once(second, "close"), [6, null], said);
  t.regex(
    said,
    new RegExp(`^svc: another svc daemon works with the store ${daemon.storeDir}; stop that one`, "m"),
  );
  t.notRegex(said, /svc is ready/);
  await t.notThrowsAsync(daemon.client(DaemonService).getStatus({}));
  // Whoever comes after one that was killed has the store.
  await daemon.kill();
  await daemon.restart();
  t.pass();
});

test("a store is had by the next one as soon as the one before lets go of it", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-claim-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const first = await claimStore(dir);
  const next = claimStore(dir);
  await first[Symbol.asyncDispose]();
  const claim = await next;
  const error = await t.throwsAsync(claimStore(dir), { instanceOf: SvcError });
  t.is(error.code, "unavailable");
  await claim[Symbol.asyncDispose]();
});
