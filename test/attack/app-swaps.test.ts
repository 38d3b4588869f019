/** A user who exchanges directories for links while svc installs, upgrades, backs up, restores, clones and removes an app. */
import { execFile } from "node:child_process";
import { chmod, chown, lstat, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { writeFiles } from "../support/packages.ts";
import { openExchanger, snapshot } from "./swaps.ts";

const run = promisify(execFile);
const nobody = 65_534;
const rootTest = isRoot ? test : test.skip;
const rounds = 2;

/** As the user: root would follow the links. */
async function plant(directory: string, outside: string): Promise<void> {
  const create = 'mkdir -p named/sub && echo mine > named/canary && ln -s "$1" link';
  // A copy of the source has both, and either of them may be the link.
  const script = `cd "$0" && { test -h named || test -h link || { ${create}; }; }`;
  const identity = [`--reuid=${nobody}`, `--regid=${nobody}`, "--clear-groups", "--"];
  await run("setpriv", [...identity, "/bin/sh", "-c", script, directory, outside]);
}

/** Names of files with the content of root's files. Links are not followed, even if they replace a directory meanwhile. */
function copiesBelow(dir: string): Promise<string> {
  const text = ({ stdout }: { stdout: string }): string => stdout;
  return run("grep", ["-rlF", "secret of root", dir]).then(text, text);
}

rootTest(
  `no change of an app reads or writes outside while its owner swaps directories${needsRoot}`,
  async (t) => {
    t.timeout(600_000);
    await using daemon = await startDaemon({ config: "[limits]\nmax_installs_per_user = 2\n" });
    await using user = await daemon.as(nobody);
    const outside = join(daemon.dir, "outside");
    await mkdir(join(outside, "sub"), { recursive: true });
    await writeFile(join(outside, "canary"), "secret of root");
    await writeFile(join(outside, "sub/deep"), "secret of root");
    for (const path of ["canary", "sub/deep"]) await chmod(join(outside, path), 0o600);
    // Readable directories, so that only the files are protected by their modes.
    const before = await snapshot(outside);
    const source = join(daemon.dir, "source");
    await mkdir(source);
    await chown(source, nobody, nobody);
    await chmod(daemon.dir, 0o755);
    await plant(source, outside);
    const manifest = (version: number): string =>
      `id: swaps\nname: Swaps\nversion: "${version}"\nprocess: { exec: [/bin/sleep, "1000"] }\nstop: { grace: 1s }\nvolumes: [{ name: media }]\n`;
    await writeFiles(source, { "svc.yaml": manifest(0) });
    const [apps, backups] = [user.client(AppService), user.client(BackupService)];
    const counts = { done: 0, rejected: 0 };
    const attempt = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
      try {
        const result = await work();
        counts.done++;
        return result;
      } catch {
        counts.rejected++;
        return undefined;
      }
    };
    await using stack = new AsyncDisposableStack();
    await stack.use(openExchanger(nobody)).begin(source);
    let app = await attempt(() => apps.installApp({ spec: source }));
    for (let round = 1; round <= rounds; round++) {
      app ??= await attempt(() => apps.installApp({ spec: source }));
      if (app === undefined) continue;
      const { directory } = app;
      await using inner = new AsyncDisposableStack();
      for (const place of ["data", "data/media", "repo"]) {
        const at = join(directory, place);
        if ((await lstat(at).catch(() => undefined))?.uid !== nobody) continue;
        await plant(at, outside);
        await inner.use(openExchanger(nobody)).begin(at);
      }
      await attempt(() => apps.startApp({ id: "swaps" }));
      const made = await attempt(() => backups.createBackup({ appId: "swaps" }));
      await writeFiles(source, { "svc.yaml": manifest(round) });
      await attempt(() => apps.upgradeApp({ id: "swaps", stopApp: true }));
      await attempt(() => apps.stopApp({ id: "swaps" }));
      const copy = await attempt(() => apps.cloneApp({ id: "swaps" }));
      const [archive] = made?.results ?? [];
      if (archive !== undefined)
        await attempt(() =>
          backups.restoreBackup({ appId: "swaps", storage: archive.storage, name: archive.name }),
        );
      for (const { id } of [copy, app].filter((each) => each !== undefined)) {
        t.is(await copiesBelow(join(directory, "..", id)), "");
        await attempt(() => apps.removeApp({ id }));
      }
      app = undefined;
      t.deepEqual(await snapshot(outside), before);
    }
    t.log(counts);
    t.true(counts.done > rounds);
    t.deepEqual(await snapshot(outside), before);
  },
);
