/** The destination of the daemon's log, as `svc status` shows it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";

const log = new URL("../../src/daemon/log.ts", import.meta.url).href;

async function destination(stderr: number | "pipe", isJournal: boolean): Promise<string> {
  const code = `console.log((await import(${JSON.stringify(log)})).logDestination(${String(isJournal)}))`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
    stdio: ["ignore", "pipe", stderr],
  });
  let text = "";
  child.stdout?.on("data", (piece: Buffer) => (text += piece.toString()));
  await once(child, "close");
  return text.trim();
}

test("the log goes to the journal, to a file, or to a pipe without a name", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-log-"));
  const path = join(dir, "daemon.log");
  const file = await open(path, "w");
  t.is(await destination(file.fd, false), path);
  t.is(await destination(file.fd, true), "journal");
  t.is(await destination("pipe", false), "");
  await file.close();
  await rm(dir, { recursive: true });
});
