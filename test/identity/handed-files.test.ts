/** Descriptors that helpers hand over: only such are read by the daemon itself as answer at once (D26, T 22). */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { HandedFiles } from "../../src/identity/handed-files.ts";

/** A process that holds what the shell opens as descriptor 5. */
async function holder(redirection: string, dir: string): Promise<ChildProcess & AsyncDisposable> {
  const script = `exec 5${redirection}; echo ready; exec sleep 600`;
  const child = spawn("sh", ["-c", script], { cwd: dir, stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout, "data");
  return Object.assign(child, {
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  });
}

async function temporary(): Promise<{ dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), "svc-handed-"));
  await writeFile(join(dir, "file"), "0123456789");
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true }) };
}

async function openOnes(dir: string): Promise<string[]> {
  const links = await Promise.all(
    (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")),
  );
  return links.filter((path) => path.startsWith(dir));
}

test("a regular file that is open for reading is read through its own descriptor, and closed", async (t) => {
  await using place = await temporary();
  await using child = await holder("< file", place.dir);
  // Whatever has its name by now.
  await rm(join(place.dir, "file"));
  await writeFile(join(place.dir, "file"), "another one");
  {
    await using file = await new HandedFiles().take(child.pid ?? 0, 5);
    const buffer = Buffer.alloc(4);
    t.is((await file?.read(buffer, 0, 4, 3))?.bytesRead, 4);
    t.is(buffer.toString(), "3456");
    t.is((await openOnes(place.dir)).length, 1);
  }
  t.deepEqual(await openOnes(place.dir), []);
});

test("more reads than may be under way at a time all come to their end", async (t) => {
  await using place = await temporary();
  await using child = await holder("< file", place.dir);
  await using file = await new HandedFiles().take(child.pid ?? 0, 5);
  const read = async (position: number) => {
    const buffer = Buffer.alloc(1);
    await file?.read(buffer, 0, 1, position);
    return buffer.toString();
  };
  const failing = file?.read(Buffer.alloc(1), 5, 1, 0).catch(() => undefined);
  t.is((await Promise.all(Array.from({ length: 10 }, (_, at) => read(at)))).join(""), "0123456789");
  await failing;
  t.is(await read(7), "7");
});

for (const [what, redirection] of [
  ["a file that is open for writing alone", "> other"],
  ["a directory", "< ."],
  ["a pipe", "< pipe"],
  ["a device", "< /dev/zero"],
  ["a file of the kernel's, which looks regular", "< /proc/self/status"],
] as const) {
  test(`${what} is not taken`, async (t) => {
    await using place = await temporary();
    const piped = redirection === "< pipe";
    await using child = await holder(piped ? "<&1" : redirection, place.dir);
    t.is(await new HandedFiles().take(child.pid ?? 0, 5), undefined);
    t.deepEqual(await openOnes(place.dir), []);
  });
}

test("nothing is taken of what is not open, or of who is gone", async (t) => {
  await using place = await temporary();
  await using child = await holder("< file", place.dir);
  const files = new HandedFiles();
  t.is(await files.take(child.pid ?? 0, 77), undefined);
  child.kill("SIGKILL");
  await once(child, "exit");
  t.is(await files.take(child.pid ?? 0, 5), undefined);
});
