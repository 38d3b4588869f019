/** An app as a compose file, with the files that it is handed beside it. */
import { basename } from "node:path";
import { publishedAs, secretPlaceholder, type ExportedApp, type Workload } from "./workload.ts";
import { yamlText } from "./yaml-text.ts";

export function toCompose(workload: Workload): ExportedApp {
  const { name, image, entrypoint, command, env, secretEnv, volumes, ports, health, limits, runtime } =
    workload;
  const files = workload.files.map((file, at) => ({ ...file, name: `${name}-${at}-${basename(file.path)}` }));
  const mounts = [
    ...volumes.map((volume) => `${volume.name}:${volume.path}`),
    ...files.map((file) => `./${file.name}:${file.path}:ro`),
    ...runtime.mounts.map(
      ({ source, target, read_only: readOnly }) => `${source}:${target}${readOnly === true ? ":ro" : ""}`,
    ),
  ];
  const isExec = health?.probe.kind === "exec";
  const service = {
    image,
    ...(entrypoint !== undefined && { entrypoint: entrypoint.map(literal) }),
    ...(command.length > 0 && { command: command.map(literal) }),
    ...(runtime.workingDir !== undefined && { working_dir: runtime.workingDir }),
    ...(runtime.user !== undefined && { user: runtime.user }),
    environment: Object.fromEntries(
      Object.entries(env).map(([key, value]) => [
        key,
        secretEnv.includes(key) && value === secretPlaceholder ? `\${${key}:?set ${key}}` : literal(value),
      ]),
    ),
    ...(ports.length > 0 &&
      runtime.network === "bridge" && {
        ports: ports.map(publishedAs),
      }),
    ...(runtime.network !== "bridge" && { network_mode: runtime.network }),
    ...(mounts.length > 0 && { volumes: mounts }),
    ...(health !== undefined &&
      isExec && {
        healthcheck: {
          test: ["CMD", ...workload.healthArgv.map(literal)],
          interval: `${health.intervalMs}ms`,
          timeout: `${health.timeoutMs}ms`,
          start_period: `${health.startPeriodMs}ms`,
          retries: health.retries,
        },
      }),
    ...(limits.memoryBytes !== undefined && { mem_limit: limits.memoryBytes }),
    ...(limits.cpus !== undefined && { cpus: limits.cpus }),
    ...(limits.openFiles !== undefined && { ulimits: { nofile: limits.openFiles } }),
    restart: workload.restart.policy === "never" ? "no" : workload.restart.policy,
    stop_signal: workload.stop.signal,
    stop_grace_period: `${workload.stop.graceMs}ms`,
    init: true,
    ...(runtime.privileged ? { privileged: true } : { security_opt: ["no-new-privileges:true"] }),
    ...(runtime.pid === "host" && { pid: "host" }),
    ...(runtime.ipc === "host" && { ipc: "host" }),
    ...(runtime.capabilities.length > 0 && { cap_add: runtime.capabilities }),
    ...(runtime.devices.length > 0 && { devices: runtime.devices }),
    ...(runtime.groups !== undefined && { group_add: runtime.groups.map(String) }),
  };
  const document = {
    services: { [name]: service },
    ...(volumes.length > 0 && { volumes: Object.fromEntries(volumes.map((volume) => [volume.name, {}])) }),
  };
  return {
    files: [
      { name: "compose.yaml", content: yamlText(document) },
      ...files.map((file) => ({ name: file.name, content: file.content })),
    ],
    notes: [
      ...(health === undefined || isExec
        ? []
        : [`compose has no check by ${health.probe.kind}: its health is not looked at`]),
      ...(secretEnv.length > 0
        ? [`set ${secretEnv.join(", ")} in the environment of docker compose, or in .env`]
        : []),
      ...(workload.replicas > 1 ? [`it runs once there, not ${workload.replicas} times`] : []),
    ],
  };
}

/** A dollar would be a variable there. */
function literal(text: string): string {
  return text.replaceAll("$", () => "$$");
}
