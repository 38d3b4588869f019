/** Parts for the host itself: containers, processes, files and reboot. */
import { DockerHost } from "../../engine/docker-host.ts";
import { FileStages } from "../../files/file-stages.ts";
import { Files } from "../../files/files.ts";
import { SystemIdentities } from "../../files/system-identities.ts";
import { HostProcesses } from "../../host/processes/host-processes.ts";
import { ProcessSignals } from "../../host/processes/process-signals.ts";
import { HostReboot } from "../../host/reboot.ts";
import type { InstalledApps } from "./apps.ts";
import type { Platform } from "./platform.ts";
import type { Runtimes } from "./runtimes.ts";

export type Host = ReturnType<typeof createHost>;

export function createHost(
  { config, clock, now, log, store, executor, userHelpers, userName, searchPath }: Platform,
  { process: processRuntime, containers, hostThread }: Runtimes,
  { finder }: InstalledApps,
  resources: AsyncDisposableStack,
) {
  const docker = new DockerHost({ ...containers, apps: finder });
  const processes = new HostProcesses({
    thread: hostThread,
    containers: (signal) => docker.running(signal),
    visibleApps: (caller) => finder.visibleIds(caller),
    userName,
  });
  const signals = new ProcessSignals({
    selfPid: process.pid,
    supervisors: () => processRuntime.runs().map(({ supervisorPid: pid, ownerUid: uid }) => ({ pid, uid })),
  });
  const reboot = resources.use(
    new HostReboot({ command: config.system.rebootCommand, userHelpers, clock, log }),
  );
  const stages = resources.use(new FileStages({ store, executor, userHelpers, log }));
  const files = new Files({
    ...{ userHelpers, stages },
    systemIdentities: new SystemIdentities(now, searchPath),
    ownFiles: [config.tokenFile],
    storeDir: config.store.dir,
  });
  return { docker, processes, signals, reboot, stages, files };
}
