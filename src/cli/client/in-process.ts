/**
 * Work without a daemon: opens the service layer in this process, on root's system paths or in the user's
 * directories. This is the only link from the command line to the daemon's modules; it is loaded when needed.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { loadConfig } from "../../daemon/config.ts";
import { createContext } from "../../daemon/context.ts";
import { createLog } from "../../daemon/log.ts";
import type { PathEnvironment } from "../../daemon/paths.ts";
import type { Programs } from "../../daemon/programs.ts";
import { loadPeerUid } from "../../server/http/peer-uid.ts";
import type { CliHost } from "../host.ts";
import { InProcessClient } from "./in-process-client.ts";
import { sudoUid } from "./routing.ts";
import type { Client } from "./client.ts";

/** After a canceled call, the time to finish and write its record, and the polling interval, in milliseconds. */
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
    // Commands print their own messages.
    log: createLog("error"),
    peerUid: loadPeerUid(),
    shutdownSignal: shutdown.signal,
  });
  context.backgroundWork.claimTrees();
  const user = {
    uid: host.uid,
    // In a per-user daemon, the user has the rights that root has in the system daemon.
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
