/** The runtimes of apps, and the thread that attributes processes of the host to apps. */
import { join } from "node:path";
import { HostThread } from "../../host/processes/host-thread.ts";
import { explainPortConflict } from "../../host/sockets/own-listeners.ts";
import type { AppRuntime } from "../../runtimes/contract.ts";
import { ProcessRuntime } from "../../runtimes/process/process-runtime.ts";
import { ServiceRuntime } from "../../runtimes/systemd/service-runtime.ts";
import { isSystemdHost, unitLimits } from "../../runtimes/systemd/systemd.ts";
import { storeIdOf } from "../../store/store-id.ts";
import { readBootId, readBootTimeMs } from "../../sys/process-identity.ts";
import { Cgroups } from "../../sys/cgroup.ts";
import { createContainerEngine } from "../container-engine.ts";
import type { Packages } from "./packages.ts";
import type { Platform } from "./platform.ts";

export type Runtimes = Awaited<ReturnType<typeof createRuntimes>>;

export async function createRuntimes(
  platform: Platform,
  { yaml, credentials }: Packages,
  resources: AsyncDisposableStack,
) {
  const { config, version, programs, selfUid, peerUid, fairQueue, now, log } = platform;
  const { store, executor, userHelpers, searchPath, settleMs } = platform;
  const cgroups = await Cgroups.detect();
  const processRuntime = resources.use(
    new ProcessRuntime({
      ...{ userHelpers, peerUid, fairQueue, searchPath, settleMs, log },
      bootId: await readBootId(),
      svcVersion: version,
      nodePath: process.execPath,
      supervisorPath: programs.supervisor,
      ...(cgroups && { cgroups }),
    }),
  );
  const containers = resources.use(
    await createContainerEngine({
      ...{ config, store, executor, userHelpers, credentials, yaml, settleMs, now, log },
    }),
  );
  const hostThread = resources.use(new HostThread({ entry: programs.hostThread }));
  const units = resources.use(
    new ServiceRuntime({
      ...{ userHelpers, searchPath, settleMs, log },
      storeId: storeIdOf(store),
      dir: join(config.store.dir, "units"),
      bootedAtMs: await readBootTimeMs(),
      isHere: await isSystemdHost(selfUid),
      enforces: await unitLimits(),
      explainPortConflict: (appId, port) => explainPortConflict(hostThread, appId, port),
    }),
  );
  hostThread.attributeTo(() => ({ runs: processRuntime.runs(), controlGroups: units.controlGroups() }));
  const byName: ReadonlyMap<string, AppRuntime> = new Map<string, AppRuntime>([
    ["process", processRuntime],
    ["service", units],
    ...containers.runtimes,
  ]);
  return { process: processRuntime, cgroups, units, containers, hostThread, byName };
}
