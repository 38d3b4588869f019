/** The parts that all others need: clock, store, users, audit log, metrics, and helper processes that run as users. */
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAppPaths } from "../../apps/records/app-paths.ts";
import { systemClock } from "../../lib/clock.ts";
import { FairQueue } from "../../lib/fair-queue.ts";
import { makeDirectory } from "../../lib/make-directory.ts";
import { AuditTrail } from "../../observability/audit/audit-trail.ts";
import { DaemonMetrics } from "../../observability/metrics/daemon-metrics.ts";
import { createUserHelpers } from "../../run-as/user-helpers.ts";
import { UserNames } from "../../run-as/user-names.ts";
import { createUsers } from "../../run-as/user.ts";
import { currentExecutor } from "../../store/executors.ts";
import { openStore } from "../../store/store.ts";
import { requireClosedStore, claimStore } from "../store-claim.ts";
import { checkAccounts } from "../config-accounts.ts";
import type { ContextOptions } from "../context-options.ts";

export type Platform = Awaited<ReturnType<typeof createPlatform>>;

/** An app that ends this soon after its start has failed to start. */
const settleMs = 1_000;

/** @throws errors of opening the store; SvcError `unavailable` if another daemon uses it, `invalid_request` if other users can replace it */
export async function createPlatform(options: ContextOptions, resources: AsyncDisposableStack) {
  const { config, version, programs, selfUid, log, clock = systemClock(), listeners = () => [] } = options;
  const { isDaemon = false, pageAddress = () => undefined, logDestination = "" } = options;
  const now = (): number => clock.nowMs();
  const startedAtMs = now();
  if (config.mode === "system") await requireClosedStore(config.store.dir, selfUid);
  const metrics = resources.use(new DaemonMetrics({ version, listeners }));
  const store = resources.use(
    await openStore({
      dir: config.store.dir,
      clock: { now },
      log,
      workerUrl: programs.storeWorker,
      ahead: options.storeAhead,
      trustsMeanwhile: true,
      onWrite: (durationMs, isStored) => metrics.observeStoreWrite(durationMs, isStored),
    }),
  );
  // Released only after every part that uses the store has ended.
  if (isDaemon) resources.use(await claimStore(config.store.dir));
  const users = createUsers();
  const names = new UserNames(async (uid) => (await users.byUid(uid)).name, now);
  const userName = (uid: number): Promise<string> => names.of(uid);
  // Looked up ahead: this user is usually the first caller, and a lookup starts a process.
  void userName(selfUid);
  // Created after the store and before the parts that make calls, so that its records are written before the store closes.
  const audit = resources.use(new AuditTrail({ store, log, now, userName }));
  metrics.watch({ auditRecordsLost: () => audit.lost });
  const paths = createAppPaths(config.store.dir);
  // Other users may only traverse these directories; the content belongs to each app's user.
  for (const dir of [paths.appsDir, paths.runDir]) await makeDirectory(dir, 0o711);
  await checkAccounts(config, users);
  const searchPath = config.apps.path.join(":");
  /** Shares the event loop fairly between users. */
  const fairQueue = new FairQueue();
  const userHelpers = resources.use(
    createUserHelpers({
      ...{ helperPath: programs.userHelper, users, searchPath, fairQueue, log },
      copiesPrefix: copiesPrefix(config.store.dir),
    }),
  );
  if (isDaemon) await userHelpers.removeLeftCopies();
  return {
    ...options,
    ...{
      clock,
      now,
      startedAtMs,
      listeners,
      pageAddress,
      logDestination,
      isDaemon,
      paths,
      searchPath,
      settleMs,
    },
    ...{ metrics, store, users, userName, audit, userHelpers },
    executor: await currentExecutor(),
    fairQueue,
  };
}

/** Each daemon removes only its own copies. @param storeDir identifies the daemon */
function copiesPrefix(storeDir: string): string {
  const id = createHash("sha256").update(storeDir).digest("hex").slice(0, 16);
  return join(tmpdir(), `svc-copies-${id}-`);
}
