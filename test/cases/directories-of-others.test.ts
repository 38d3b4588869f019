/** Directories that a container or a program gave to another user, and that the app's own user cannot handle. */
import assert from "node:assert/strict";
import { chmod, chown, lchown, lstat, mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ConnectError } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { installedCompose } from "../support/compose-generations.ts";
import { needsDocker, sharedEngine } from "../support/docker-test.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";
import { volumeNames } from "../support/unmanaged-stack.ts";

const nobody = 65534;
const other = 999;

for (const [title, mode, isReadable] of [
  ["may not read", 0o700, false],
  ["may read, but not empty", 0o755, true],
] as const) {
  (isRoot ? test : test.skip)(
    `an app with a directory that its user ${title} is removed whole, or not at all${needsRoot}`,
    async (t) => {
      await using daemon = await startDaemon();
      await using connection = await daemon.as(nobody);
      const [apps, backups] = [connection.client(AppService), connection.client(BackupService)];
      const spec = join(daemon.dir, "keeper");
      await writeFiles(spec, {
        "svc.yaml": 'id: keeper\nname: Keeper\nversion: "1"\nprocess: { exec: [sleep, "600"] }\n',
      });
      const { id, directory } = await apps.installApp({ spec });
      await apps.startApp({ id });
      const given = join(directory, "data/pg");
      await mkdir(given);
      await writeFile(join(given, "table"), "rows\n");
      await chmod(given, mode);
      await chown(given, other, other);

      const advice = `${given} belongs to another user; if it is the app's, run as root: svc file chown -R ${nobody}:${nobody} ${given}`;
      const removal = await errorOf(apps.removeApp({ id }));
      t.like(removal, { reason: "not_possible", message: `app "${id}" cannot be removed: ${advice}` });
      t.is((await apps.getApp({ id })).state, "RUNNING");
      t.deepEqual(await readdir(given), ["table"]);
      if (!isReadable) {
        const cloning = await errorOf(apps.cloneApp({ id }));
        t.like(cloning, { reason: "not_possible", message: `app "${id}" cannot be cloned: ${advice}` });
        t.regex(
          (await errorOf(backups.createBackup({ appId: id }))).message,
          /permission denied|cannot be read/,
        );
        t.deepEqual((await backups.listBackups({ appId: id })).backups, []);
        t.is((await apps.listApps({})).apps.length, 1);
      }
      const advised = { path: given, owner: `${nobody}`, group: `${nobody}`, recursive: true };
      await daemon.client(FileService).setPathAttributes(advised);
      await apps.removeApp({ id });
      t.deepEqual((await apps.listApps({})).apps, []);
    },
  );
}

(isRoot ? test : test.skip)(
  `the advice to return a directory cannot be led to another place by a link${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon();
    await using connection = await daemon.as(nobody);
    const apps = connection.client(AppService);
    const spec = join(daemon.dir, "swapped");
    await writeFiles(spec, {
      "svc.yaml": 'id: swapped\nname: Swapped\nversion: "1"\nprocess: { exec: [sleep, "600"] }\n',
    });
    const { directory } = await apps.installApp({ spec });
    const outside = join(daemon.dir, "outside");
    await mkdir(join(outside, "sudoers.d"), { recursive: true });
    await symlink(outside, join(directory, "data/link"));
    await lchown(join(directory, "data/link"), nobody, nobody);
    const path = join(directory, "data/link/sudoers.d");
    const advised = { path, owner: `${nobody}`, group: `${nobody}`, recursive: true };
    t.regex(
      (await errorOf(daemon.client(FileService).setPathAttributes(advised))).message,
      /symbolic link of another user/,
    );
    t.is((await lstat(join(outside, "sudoers.d"))).uid, 0);
  },
);

(isRoot ? test : test.skip)(
  `directories of others that are empty or writable do not prevent a removal${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon();
    await using connection = await daemon.as(nobody);
    const apps = connection.client(AppService);
    const spec = join(daemon.dir, "open");
    await writeFiles(spec, {
      "svc.yaml": 'id: open\nname: Open\nversion: "1"\nprocess: { exec: [sleep, "600"] }\n',
    });
    const { id, directory } = await apps.installApp({ spec });
    for (const [name, mode] of [
      ["empty", 0o755],
      ["shared", 0o777],
    ] as const) {
      const path = join(directory, "data", name);
      await mkdir(path);
      if (name === "shared") await writeFile(join(path, "file"), "");
      await chmod(path, mode);
      await chown(path, other, other);
    }
    await apps.removeApp({ id });
    t.deepEqual((await apps.listApps({})).apps, []);
  },
);

(isRoot ? test : test.skip)(
  `an error names a directory above one whose path is too long to show${needsRoot}`,
  async (t) => {
    await using daemon = await startDaemon();
    await using connection = await daemon.as(nobody);
    const apps = connection.client(AppService);
    const spec = join(daemon.dir, "long");
    await writeFiles(spec, {
      "svc.yaml": 'id: long\nname: Long\nversion: "1"\nprocess: { exec: [sleep, "600"] }\n',
    });
    const { id, directory } = await apps.installApp({ spec });
    const names = Array.from({ length: 12 }, () => "n".repeat(200));
    const last = join(directory, "data", ...names);
    await mkdir(join(last, "inner"), { recursive: true });
    for (let depth = 0; depth < names.length; depth++)
      await chown(join(directory, "data", ...names.slice(0, depth + 1)), nobody, nobody);
    await chown(last, other, other);
    const { message } = await errorOf(apps.removeApp({ id }));
    const path = /chown -R \d+:\d+ (.*)$/.exec(message)?.[1] ?? "";
    t.true(path.length > 800 && path.length < 1_500, `${path.length} characters`);
    const advised = { path, owner: `${nobody}`, group: `${nobody}`, recursive: true };
    await daemon.client(FileService).setPathAttributes(advised);
    await apps.removeApp({ id });
    t.deepEqual((await apps.listApps({})).apps, []);
  },
);

const engineNow = sharedEngine();
const needsCompose =
  needsDocker || (installedCompose === undefined ? " (skipped: needs docker-compose)" : "");
const composeTest = isRoot && needsCompose === "" ? test : test.skip;

/** The container of each app, which runs as root in its namespaces, gives the directory to another user. */
for (const [id, mode, isReadable] of [
  ["closed", "700", false],
  ["open", "755", true],
] as const) {
  composeTest(
    `root_runs_as: a ${id} directory that a container gave away is handled whole, or rejected before any change${needsRoot || needsCompose}`,
    async (t) => {
      t.timeout(180_000);
      const engine = engineNow();
      await engine.images.build("busybox:latest");
      const path = JSON.stringify(installedCompose?.dirs ?? []);
      await using daemon = await startDaemon({
        config: `${engine.config}\n[apps]\nroot_runs_as = "nobody"\npath = ${path}\n`,
      });
      const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
      const spec = join(daemon.dir, id);
      await mkdir(join(spec, "pg"), { recursive: true });
      await writeFiles(spec, {
        "compose.yaml": `services:
  db:
    image: busybox
    command: ["sh", "-c", "chown -R ${other}:${other} /var/db; chmod ${mode} /var/db; test -e /var/db/v || echo data > /var/db/v; trap 'exit 0' TERM; sleep 600 & wait"]
    volumes: ["./pg:/var/db", "named:/var/named"]
volumes: { named: {} }
`,
        "pg/.keep": "",
      });
      const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
      const installed = await svc("install", join(spec, "compose.yaml"), "--start", "--yes");
      t.is(installed.exitCode, 0, installed.stderr);
      const { directory } = await apps.getApp({ id });
      const given = join(directory, "data/pg");
      await eventually(async () => {
        assert.equal((await lstat(given)).uid, other);
        assert.deepEqual(await readdir(given), [".keep", "v"]);
      });
      const volumes = await volumeNames(engine);

      const advice = `${given} belongs to another user; if it is the app's, run as root: svc file chown -R ${nobody}:${nobody} ${given}`;
      t.like(await errorOf(apps.removeApp({ id })), {
        reason: "not_possible",
        message: `app "${id}" cannot be removed: ${advice}`,
      });
      t.like(await apps.getApp({ id }), { state: "RUNNING", operation: undefined });
      t.deepEqual(await volumeNames(engine), volumes);
      t.is(await readFile(join(given, "v"), "utf8"), "data\n");
      if (isReadable) {
        const copy = await apps.getApp({ id: (await apps.cloneApp({ id })).id });
        t.is(await readFile(join(copy.directory, "data/pg/v"), "utf8"), "data\n");
        await apps.removeApp({ id: copy.id });
        const { results } = await backups.createBackup({ appId: id });
        const archive = { appId: id, storage: "local", name: results[0]?.name ?? "" };
        const { entries } = await backups.browseBackup({ ...archive, path: "data/pg" });
        t.deepEqual(entries.map((entry) => entry.path).toSorted(), ["data/pg/.keep", "data/pg/v"]);
      } else {
        t.regex((await errorOf(apps.cloneApp({ id }))).message, new RegExp(`app "${id}" cannot be cloned: `));
        t.regex(
          (await errorOf(backups.createBackup({ appId: id }))).message,
          /permission denied|cannot be read/,
        );
        t.deepEqual((await backups.listBackups({ appId: id })).backups, []);
        t.is((await apps.listApps({})).apps.length, 1);
      }

      const returned = { path: given, owner: `${nobody}`, group: `${nobody}`, recursive: true };
      await daemon.client(FileService).setPathAttributes(returned);
      await backups.createBackup({ appId: id });
      await apps.removeApp({ id });
      t.deepEqual((await apps.listApps({})).apps, []);
      t.deepEqual(await volumeNames(engine), []);
      await t.throwsAsync(lstat(directory), { code: "ENOENT" });
    },
  );
}

const mixedDaemon = sharedDaemon();

/** Paths below `data`, each with its owner and mode; those that end with a slash are directories. */
const mixtures: readonly (readonly [
  title: string,
  ...(readonly [path: string, uid: number, mode: number])[],
])[] = [
  ["a sticky directory with a file", ["s/", other, 0o1777], ["s/f", other, 0o644]],
  ["a sticky directory with the app's own file", ["s/", other, 0o1777], ["s/f", nobody, 0o644]],
  ["an own sticky directory with another's file", ["s/", nobody, 0o1777], ["s/f", other, 0o644]],
  [
    "a closed directory in an open one",
    ["o/", other, 0o777],
    ["o/c/", other, 0o755],
    ["o/c/f", other, 0o644],
  ],
  [
    "an open directory in a closed one",
    ["c/", other, 0o755],
    ["c/o/", other, 0o777],
    ["c/o/f", other, 0o644],
  ],
  ["an empty directory in a closed one", ["c/", other, 0o755], ["c/e/", other, 0o755]],
  [
    "an own directory in a closed one",
    ["c/", other, 0o755],
    ["c/n/", nobody, 0o755],
    ["c/n/f", nobody, 0o644],
  ],
  ["a directory that cannot be read", ["r/", other, 0o700], ["r/f", other, 0o600]],
  ["an empty directory that cannot be read", ["r/", other, 0o700]],
  ["a directory that can be written but not read", ["w/", other, 0o333], ["w/f", other, 0o600]],
  [
    "an own directory without permissions",
    ["n/", nobody, 0o000],
    ["n/f", nobody, 0o600],
    ["n/o/", other, 0o777],
  ],
];

for (const [title, ...entries] of mixtures) {
  (isRoot ? test : test.skip)(
    `${title} is removed with its app, or the error has the chown command that helps${needsRoot}`,
    async (t) => {
      const daemon = await mixedDaemon();
      await using connection = await daemon.as(nobody);
      const apps = connection.client(AppService);
      const spec = join(daemon.dir, "mixed");
      await writeFiles(spec, {
        "svc.yaml": 'id: mixed\nname: Mixed\nversion: "1"\nprocess: { exec: [sleep, "600"] }\n',
      });
      const { id, directory } = await apps.installApp({ spec });
      for (const [path] of entries) {
        if (path.endsWith("/")) await mkdir(join(directory, "data", path));
        else await writeFile(join(directory, "data", path), "");
      }
      for (const [path, uid, mode] of entries.toReversed()) {
        await chown(join(directory, "data", path), uid, uid);
        await chmod(join(directory, "data", path), mode);
      }
      const returned = { owner: `${nobody}`, group: `${nobody}`, recursive: true };
      const giveBack = (path: string) => daemon.client(FileService).setPathAttributes({ ...returned, path });
      t.teardown(() => giveBack(join(directory, "data")).catch(() => undefined));
      const error = await apps.removeApp({ id }).then(
        () => undefined,
        (thrown: unknown) => ConnectError.from(thrown),
      );
      if (error !== undefined) {
        t.regex(error.message, /belongs? to .*chown -R/s);
        await giveBack(/chown -R \d+:\d+ (.*)$/.exec(error.message)?.[1] ?? "");
        await apps.removeApp({ id });
      }
      t.deepEqual((await apps.listApps({})).apps, []);
      await t.throwsAsync(lstat(directory), { code: "ENOENT" });
    },
  );
}
