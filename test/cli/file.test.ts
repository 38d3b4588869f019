/** `svc file …` with a real daemon, by absolute paths and by apps. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { runSvc } from "./support/run-svc.ts";

test("files of an app can be written, listed, read, changed and removed as APP:PATH", async (t) => {
  await using daemon = await startDaemon();
  const here = await mkdtemp(join(tmpdir(), "svc-cli-files-"));
  t.teardown(() => rm(here, { recursive: true, force: true }));
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  await daemon.client(AppService).installApp({ spec: dir });
  const svc = (...args: string[]) => runSvc(["file", ...args, "--socket", daemon.socketPath]);
  const big = Buffer.alloc(3_000_000, "some text\n");
  await writeFile(join(here, "big.txt"), big);

  t.regex((await svc("mkdir", "-p", "web:data/x")).stdout, /^Made .*\/apps\/web\/data\/x$/m);
  const put = await svc("put", join(here, "big.txt"), "web:data/x/");
  t.regex(put.stdout, /^Wrote .*\/data\/x\/big\.txt \(2\.9 MiB\)$/m, put.stderr);
  const missing = await svc("put", join(here, "big.txt"), "web:data/no/where/big.txt");
  t.regex(missing.stderr, /\/data\/no" does not exist/);
  const inTheWay = await svc("put", join(here, "big.txt"), "web:data/x/big.txt");
  t.is(inTheWay.exitCode, 5);
  t.regex(inTheWay.stderr, /big\.txt" exists already; overwrite it with --force/);
  t.is((await svc("put", "-f", join(here, "big.txt"), "web:data/x/big.txt")).exitCode, 0);
  t.true((await svc("cat", "web:data/x/big.txt")).stdout === big.toString());
  t.is((await svc("get", "web:data/x/big.txt", join(here, "back"))).exitCode, 0);
  t.true((await readFile(join(here, "back"))).equals(big));
  t.is((await svc("get", "web:data/x/big.txt", join(here, "back"))).exitCode, 2);
  t.is((await svc("get", "web:data/x/big.txt", here)).exitCode, 2, "big.txt exists there");
  t.is((await svc("get", "web:data/x/none", join(here, "none"))).exitCode, 3);
  await t.throwsAsync(readFile(join(here, "none")), { code: "ENOENT" }, "a failed copy leaves no file");
  t.true((await readFile(join(here, "back"))).equals(big), "nor removes one that was there");
  await writeFile(join(here, "second"), "2");
  t.regex((await svc("put", join(here, "second"), "web:data/x")).stdout, /^Wrote .*\/data\/x\/second /);
  t.is((await svc("rm", "web:data/x/second", "--yes")).exitCode, 0);
  await mkdir(join(here, "in"));
  t.regex((await svc("get", "web:data/x/big.txt", join(here, "in"))).stdout, /^Wrote .*\/in\/big\.txt /);
  t.true((await readFile(join(here, "in/big.txt"))).equals(big));
  t.is((await svc("ls", "-l", "web:data/x")).exitCode, 0);
  t.regex((await svc("ls", "web:data/x")).stdout, /- 0644 +\S+ +\S+ +2\.9 MiB .* big\.txt$/m);
  const { stdout } = await svc("stat", "web:data/x/big.txt", "--json");
  const { etag } = JSON.parse(stdout) as { etag: string };
  t.is((await svc("put", "--if-match", etag, join(here, "big.txt"), "web:data/x/big.txt")).exitCode, 0);
  const stale = await svc("put", "--if-match", etag, join(here, "big.txt"), "web:data/x/big.txt");
  t.regex(stale.stderr, /has changed since it was read/);
  t.regex((await svc("cp", "web:data/x", "web:data/y")).stdout, /^Copied to .*\/data\/y \(2\.9 MiB\)$/m);
  const local = await svc("cp", "package.json", "web:data/x");
  t.regex(
    local.stderr,
    /"package\.json" is neither .*; to copy a file of this directory to the host: svc file put\n/,
  );
  t.regex((await svc("mv", "web:data/y/big.txt", "web:data/y/moved")).stdout, /^Moved to /);
  t.regex((await svc("chmod", "0600", "web:data/y/moved")).stdout, /0600/);
  t.is((await svc("chown", "nobody", "web:data/y/moved")).exitCode, process.getuid?.() === 0 ? 0 : 1);
  t.is((await svc("chown", ":", "web:data/y/moved")).exitCode, 2);
  const packed = await svc("tar", "web:kept.zip", "web:data/x");
  t.regex(packed.stdout, /^Packed .*\/apps\/web\/kept\.zip \(\S+ KiB\)$/m, packed.stderr);
  const unpacked = await svc("untar", "web:kept.zip", "web:data/z", "--max-ratio", "1000");
  t.regex(unpacked.stdout, /^Unpacked into .*\/data\/z \(2 entries, 2\.9 MiB\)$/m, unpacked.stderr);
  t.true((await svc("cat", "web:data/z/x/big.txt")).stdout === big.toString());
  t.regex((await svc("untar", "web:kept.zip", "web:data/z")).stderr, /data\/z\/x" exists already/);
  t.is((await svc("untar", "web:kept.zip", "web:data/w", "--max-bytes", "1000")).exitCode, 5);
  t.is((await svc("untar", "web:kept.zip", "web:data/w", "--max-bytes", "1k")).exitCode, 2);
  t.regex((await svc("du", "web:data")).stdout, /^ +\S+ MiB {2}\/.*\/data\/x\n[^]* {2}\/.*\/data\n$/);
  t.regex(
    (await svc("find", "web:data", "big.*")).stdout,
    /^\/.*\/data\/x\/big\.txt\n\/.*\/data\/z\/x\/big\.txt\n$/,
  );
  t.is((await svc("find", "web:data", "nothing")).exitCode, 1);
  const grep = await svc("grep", "-E", "^some t[ex]*t$", "web:data/x", "--limit", "2");
  t.regex(grep.stdout, /^\/.*\/big\.txt:1:some text\n\/.*\/big\.txt:2:some text\n$/);
  t.regex(grep.stderr, /there may be more/);
  t.is((await svc("tail", "-n", "2", "web:data/x/big.txt")).stdout, "some text\nsome text\n");
  t.regex((await svc("rm", "web:data/x")).stderr, /cannot be recovered; pass --yes to confirm/);
  const nothing = await svc("rm", "web:data/x", "web:data/xx");
  t.is(nothing.exitCode, 3, "no question about a missing file");
  t.regex(nothing.stderr, /data\/xx" does not exist/);
  t.regex((await svc("rm", "--yes", "web:data/x", "web:data/y")).stdout, /^Deleted .*\nDeleted /);
  t.is((await svc("rm", "--yes", "web:data/x")).exitCode, 1);
  t.is((await svc("ls", "web:../../..")).exitCode, 2);
  t.is((await svc("ls", "relative")).exitCode, 2);
  t.is((await svc("ls", "nothing:data")).exitCode, 3);
});
