/**
 * Work without a daemon: the service layer opened in this very process, on root's system paths or in the user's own
 * directories (S 5.3.2). The only door from the command line to the daemon's parts, loaded when it is needed.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { loadConfig } from "../daemon/config.ts";
import { createContext } from "../daemon/context.ts";
import { createLog } from "../daemon/log.ts";
import type { PathEnvironment } from "../daemon/paths.ts";
import type { Programs } from "../daemon/programs.ts";
import { loadPeerUid } from "../transport/peer-uid.ts";
import type { CliHost } from "./host.ts";
import { InProcessClient } from "./in-process-client.ts";
import { sudoUid } from "./routing.ts";
import type { Client } from "./transport/client.ts";

/** For a call that was given up to end, whose record is written then: at most, and between two looks. */
const [endingMs, endingStepMs] = [3_000, 5];

export interface InProcessOptions {
  readonly environment: PathEnvironment;
  readonly programs: Programs;
}

export async function openInProcess(host: CliHost, options: InProcessOptions): Promise<Client> {
  const { environment, programs } = options;
  const config = await loadConfig({ environment });
  const shutdown = new AbortController();
  const context = await createContext({
    config,
    reloadConfig: () => loadConfig({ environment }),
    version: host.version,
    programs,
    selfUid: host.uid,
    // A command prints what it has to say itself.
    log: createLog("error"),
    peerUid: loadPeerUid(),
    shutdownSignal: shutdown.signal,
  });
  context.apps.claimTrees();
  const user = {
    uid: host.uid,
    // The daemon of one's own has its own uid as root (D10).
    root: true,
    kind: "local",
    ownerUid: sudoUid(host) ?? host.uid,
  } as const;
  return new InProcessClient({
    pipeline: context.pipeline,
    user,
    dispose: async () => {
      shutdown.abort();
      const deadlineMs = performance.now() + endingMs;
      while (context.pipeline.callsInFlight > 0 && performance.now() < deadlineMs) await sleep(endingStepMs);
      await context[Symbol.asyncDispose]();
    },
  });
}
