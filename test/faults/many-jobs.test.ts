/**
 * 64 users with ten jobs each that sleep for five minutes (S 1.4.3): each one's quick job, and the start of an app by root
 * and by another user, wait for none of it. What it took is printed: 2 s are the goal on a machine that has nothing else to do.
 */
import { execFile } from "node:child_process";
import { chmod, chown, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { insertApp } from "../../src/apps/app-record.ts";
import { createAppPaths } from "../../src/apps/app-paths.ts";
import { mapBounded } from "../../src/lib/map-bounded.ts";
import { openStore } from "../../src/store/store.ts";
import { temporaryDir } from "../store/support/temporary-store.ts";
import { isRoot, needsRoot, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { newApp } from "../support/many-apps.ts";
import { freePort, writePackage } from "../support/packages.ts";

const run = promisify(execFile);
const rootTest = isRoot ? test : test.skip;
const users = 64;
const longPerUser = 10;
const firstUid = 21_001;
const uids = Array.from({ length: users }, (_, index) => firstUid + index);
/** Far above the goal: the machine may be busy with other tests. */
const deadlineMs = 60_000;
/** Of this test. */
const callsAtOnce = 32;

const appOf = (uid: number): string => `app-${uid}`;

/** A command that runs the daemon where the host has these users, or undefined where mounts are not allowed. */
async function amongUsers(dir: string): Promise<readonly string[] | undefined> {
  const file = join(dir, "passwd");
  const lines = uids.map((uid) => `user${uid}:x:${uid}:${uid}::/tmp:/bin/sh\n`);
  await writeFile(file, (await readFile("/etc/passwd", "utf8")) + lines.join(""));
  await chmod(file, 0o644);
  const args = ["--mount", "sh", "-c", `mount --bind ${file} /etc/passwd && exec "$@"`, "sh"];
  return run("unshare", [...args, "true"]).then(
    () => ["unshare", ...args],
    () => undefined,
  );
}

/** An app of each of them, as an install would leave it. */
async function addApps({ storeDir }: TestDaemon): Promise<void> {
  await using store = await openStore({ dir: storeDir });
  await store.write(uids.map((uid) => insertApp(newApp(appOf(uid), uid))));
  for (const uid of uids) {
    const directory = createAppPaths(storeDir).appDir(appOf(uid));
    await mkdir(directory, { recursive: true });
    await chown(directory, uid, uid);
  }
}

async function took(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

rootTest(`${users * longPerUser} long jobs of ${users} users keep nobody waiting${needsRoot}`, async (t) => {
  t.timeout(600_000);
  await using dir = await temporaryDir();
  const launcher = await amongUsers(dir.path);
  if (launcher === undefined) {
    t.pass("no mount namespace here");
    return;
  }
  await using daemon = await startDaemon({ launcher });
  await addApps(daemon);
  const apps = daemon.client(AppService);
  const schedules = daemon.client(ScheduleService, "grpc");
  await using door = await daemon.as(5);
  const othersApps = door.client(AppService);
  for (const [client, id] of [
    [apps, "roots"],
    [othersApps, "others"],
  ] as const) {
    const spec = join(daemon.dir, id);
    await writePackage(spec, await freePort(), { id });
    await client.installApp({ spec });
  }

  const upsert = (owner: number, id: string, command: string): Promise<unknown> =>
    schedules.upsertSchedule({
      id,
      owner,
      trigger: "0 0 1 1 *",
      timeout: 3_600,
      action: { type: "shell", app: appOf(owner), command },
    });
  const jobs = uids.flatMap((owner) =>
    Array.from({ length: longPerUser }, (_, index) => ({ owner, id: `long-${index}` })),
  );
  await mapBounded(jobs, callsAtOnce, ({ owner, id }) => upsert(owner, id, "sleep 300"));
  await mapBounded(uids, callsAtOnce, (owner) => upsert(owner, "quick", "true"));

  const runQuick = async (owner: number): Promise<void> => {
    const signal = AbortSignal.timeout(deadlineMs);
    const events = await Array.fromAsync(schedules.runScheduleStream({ id: "quick", owner }, { signal }));
    const { event } = events.at(-1) ?? {};
    t.is(event?.case === "run" ? event.value.status : event?.case, "SUCCEEDED");
  };

  const beganMs = await took(() =>
    mapBounded(jobs, callsAtOnce, ({ owner, id }) => schedules.runSchedule({ id, owner })),
  );
  const [rootsMs, othersMs, ...quickMs] = await Promise.all([
    took(() => apps.startApp({ id: "roots" })),
    took(() => othersApps.startApp({ id: "others" })),
    ...uids.map((uid) => took(() => runQuick(uid))),
  ]);
  const going = await mapBounded(
    jobs,
    callsAtOnce,
    async ({ owner, id }) => (await schedules.listScheduleRuns({ id, owner })).runs[0]?.status,
  );
  t.deepEqual(new Set(going), new Set(["RUNNING"]));
  const sorted = quickMs.toSorted((a, b) => a - b);
  t.log(
    `${jobs.length} runs opened in ${Math.round(beganMs)} ms; right after that, all at once: a quick job of each of ${users} users ` +
      `${Math.round(sorted[users / 2] ?? 0)} ms (median), ${Math.round(sorted.at(-1) ?? 0)} ms (longest); ` +
      `app start of root ${Math.round(rootsMs)} ms, of another user ${Math.round(othersMs)} ms`,
  );
  t.true(Math.max(rootsMs, othersMs, ...quickMs) < deadlineMs);
});
