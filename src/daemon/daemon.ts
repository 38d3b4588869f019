/** The daemon: all services and their listeners, from start to graceful stop. */
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";
import type { Clock } from "../lib/clock.ts";
import type { ListeningAddresses } from "../server/http/socket-listeners.ts";
import { Listeners } from "../server/http/listeners.ts";
import type { PageFiles } from "../server/http/pages.ts";
import { loadPeerUid } from "../server/http/peer-uid.ts";
import type { Config } from "./config.ts";
import { createContext } from "./context.ts";
import { exposureWarning } from "./exposure.ts";
import { createLog, logDestination } from "./log.ts";
import { unlistedWarning } from "./unlisted-images.ts";
import { createMemoryRelease } from "./memory-release.ts";
import type { InspectionAhead } from "../store/store.ts";
import type { Programs } from "./programs.ts";

/**
 * Delay before background work, so that clients that poll for the socket, or wait in its queue, get their responses
 * first.
 */
const firstAnswersMs = 10;

export interface DaemonOptions {
  config: Config;
  /** Reads the configuration file again. */
  reloadConfig: () => Promise<Config>;
  version: string;
  programs: Programs;
  selfUid: number;
  /** The public pages. */
  pages: PageFiles;
  /** The inspection of the store that `inspectAhead` started. */
  storeAhead?: InspectionAhead | undefined;
  /** Whether systemd's journal reads the log from standard error. */
  isJournal?: boolean;
  /** Descriptors of sockets that systemd has already bound. */
  listenFds?: readonly number[];
  /** Default: the host's clock. */
  clock?: Clock;
}

export interface Daemon extends AsyncDisposable {
  /** The addresses that the daemon listens on now. */
  readonly addresses: ListeningAddresses;
  /** Applies the changed configuration file; logs errors in it. */
  reload: () => Promise<void>;
}

/**
 * Starts the daemon, and resolves when it responds to requests. Disposing it stops it gracefully: apps continue to
 * run.
 * @throws SvcError `unavailable` if neither the TCP address nor the socket can be bound, or another daemon uses the
 *   store; errors of opening the store
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { config, reloadConfig, version, programs, selfUid, pages, storeAhead, listenFds, clock } = options;
  const { isJournal } = options;
  await using resources = new AsyncDisposableStack();
  const log = createLog(config.log.level, isJournal);
  const shutdown = new AbortController();
  const started: { listeners?: Listeners } = {};
  const context = resources.use(
    await createContext({
      config,
      reloadConfig,
      version,
      programs,
      selfUid,
      log,
      storeAhead,
      pageAddress: () => started.listeners?.pageAddress,
      listeners: () => started.listeners?.statuses ?? [],
      peerUid: loadPeerUid(),
      ...(clock !== undefined && { clock }),
      shutdownSignal: shutdown.signal,
      logDestination: logDestination(isJournal),
      isDaemon: true,
    }),
  );
  // Disposed before the services, so that the calls that use them end first.
  resources.defer(() => {
    shutdown.abort(new SvcError("unavailable", "the daemon is stopping; try again in a moment"));
  });
  const listeners = resources.use(
    new Listeners({
      pipeline: context.pipeline,
      tokens: context.tokens,
      consoleTokens: context.consoleTokens,
      mode: config.mode,
      selfUid,
      tcp: config.api.listen,
      socketPath: config.api.socket,
      listenFds,
      allowedHosts: config.api.allowedHosts,
      trustedProxies: config.api.trustedProxies,
      limits: config.api.limits,
      pages,
      log,
    }),
  );
  const addresses = await listeners.start();
  started.listeners = listeners;
  // Pending requests get their responses before background work starts.
  await sleep(firstAnswersMs);
  resources.use(createMemoryRelease());
  context.backgroundWork.startReconciling();
  // Not awaited, because a remote storage may take long.
  context.backups.settle().catch((error: unknown) => {
    log.error({ err: error }, "failed to clean up after earlier backups");
  });
  await context.scheduler.start();
  context.hostMetrics.start();
  context.appHistory.start();
  if (config.apps.checkUpdates) context.updates.start();
  context.alerts.start();
  context.events.start();
  const exposure = exposureWarning(config);
  if (exposure !== undefined) log.warn({}, exposure);
  const unlisted = unlistedWarning(await context.unlistedImages());
  if (unlisted !== undefined) log.warn({}, unlisted);
  log.info({ version, mode: config.mode, store: config.store.dir, ...addresses }, "svc is ready");
  const owned = resources.move();
  return {
    get addresses() {
      return listeners.addresses;
    },
    reload: async () => {
      try {
        log.info(await context.configReload.reload(), "svc has read its configuration again");
      } catch (error) {
        log.error({ err: error }, "failed to reload the configuration; the previous one stays in use");
      }
    },
    [Symbol.asyncDispose]: async () => {
      log.info({}, "svc is stopping");
      // First, so that no new call starts during the shutdown.
      const reconcilingStopped = context.backgroundWork.stopReconciling();
      await context.scheduler.stop();
      await reconcilingStopped;
      await context.health.stop();
      await owned.disposeAsync();
      log.flush();
    },
  };
}
