/** Archives whose entries get another owner, made and listed by tar(1). */
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { tarOwnedBy } from "../../src/lib/tar-owner.ts";

async function* inParts(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size));
}

async function archiveOf(t: { teardown: (work: () => Promise<void>) => void }): Promise<Buffer> {
  const directory = await mkdtemp(join(tmpdir(), "svc-tar-"));
  t.teardown(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, "vélo/sub"), { recursive: true });
  await writeFile(join(directory, `vélo/${"long".repeat(40)}`), "x".repeat(1_500), { mode: 0o644 });
  await writeFile(join(directory, "vélo/sub/empty"), "");
  execFileSync("chmod", ["4755", join(directory, "vélo/sub/empty")]);
  await symlink("empty", join(directory, "vélo/sub/link"));
  return execFileSync("tar", ["-C", directory, "--format=pax", "--owner=7", "--group=8", "-c", "vélo"]);
}

for (const owner of [
  { uid: 1000, gid: 1001 },
  { uid: 3_000_000_000, gid: 12 },
]) {
  test(`every entry belongs to ${owner.uid}, the directory itself last`, async (t) => {
    const archive = await archiveOf(t);
    for (const size of [1, 700, archive.length]) {
      const owned = await Array.fromAsync(tarOwnedBy(inParts(archive, size), owner));
      const input = Buffer.concat(owned);
      const lines = execFileSync("tar", ["--numeric-owner", "-tvf", "-"], { input })
        .toString()
        .trim()
        .split("\n");
      t.is(lines.length, 5);
      for (const line of lines) t.regex(line, new RegExp(`^[^s]+ ${owner.uid}/${owner.gid} `));
      t.regex(lines.at(-1)!, /^d.* v.*lo\/$/);
    }
  });
}

test("a directory that already belongs to the owner needs no change, and a truncated archive is an error", async (t) => {
  const archive = await archiveOf(t);
  t.deepEqual(await Array.fromAsync(tarOwnedBy(inParts(archive, 512), { uid: 7, gid: 8 })), []);
  const half = inParts(archive.subarray(0, 2_048), 512);
  await t.throwsAsync(Array.fromAsync(tarOwnedBy(half, { uid: 1, gid: 1 })), { message: /ended early/ });
});
