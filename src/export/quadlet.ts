/** An app as units of Podman's Quadlet (podman-systemd.unit(5)), for `~/.config/containers/systemd`. */
import { basename } from "node:path";
import { SvcError } from "../errors.ts";
import { publishedAs, secretPlaceholder, type ExportedApp, type Workload } from "./workload.ts";

export function toQuadlet(workload: Workload): ExportedApp {
  const { name, image, entrypoint, command, env, secretEnv, volumes, ports, health, limits, runtime } =
    workload;
  const files = workload.files.map((file, at) => ({ ...file, name: `${name}-${at}-${basename(file.path)}` }));
  const secrets = secretEnv.filter((key) => env[key] === secretPlaceholder);
  const args = [
    ...(limits.memoryBytes === undefined ? [] : [`--memory=${limits.memoryBytes}`]),
    ...(limits.cpus === undefined ? [] : [`--cpus=${limits.cpus}`]),
    ...(runtime.privileged ? ["--privileged"] : []),
    ...(runtime.pid === "host" ? ["--pid=host"] : []),
    ...(runtime.ipc === "host" ? ["--ipc=host"] : []),
  ];
  const isExec = health?.probe.kind === "exec";
  const container: [string, string][] = [
    ["Image", image],
    ["ContainerName", name],
    ...(entrypoint === undefined ? [] : [["Entrypoint", JSON.stringify(entrypoint)] as [string, string]]),
    ...(command.length === 0 ? [] : [["Exec", command.map(quoted).join(" ")] as [string, string]]),
    ...(runtime.workingDir === undefined ? [] : [["WorkingDir", runtime.workingDir] as [string, string]]),
    ...(runtime.user === undefined ? [] : [["User", runtime.user] as [string, string]]),
    ...Object.entries(env)
      .filter(([key]) => !secrets.includes(key))
      .map(([key, value]): [string, string] => ["Environment", quoted(`${key}=${value}`)]),
    ...secrets.map((key): [string, string] => ["Secret", `${secretName(name, key)},type=env,target=${key}`]),
    ...ports.map((port): [string, string] => ["PublishPort", publishedAs(port)]),
    ...volumes.map((volume): [string, string] => ["Volume", `${name}-${volume.name}.volume:${volume.path}`]),
    ...files.map((file): [string, string] => ["Volume", `./${file.name}:${file.path}:ro`]),
    ...runtime.mounts.map(({ source, target, read_only: readOnly }): [string, string] => [
      "Volume",
      `${source}:${target}${readOnly === true ? ":ro" : ""}`,
    ]),
    ...(health === undefined || !isExec
      ? []
      : ([
          ["HealthCmd", JSON.stringify(workload.healthArgv)],
          ["HealthInterval", `${health.intervalMs}ms`],
          ["HealthTimeout", `${health.timeoutMs}ms`],
          ["HealthStartPeriod", `${health.startPeriodMs}ms`],
          ["HealthRetries", String(health.retries)],
        ] as [string, string][])),
    ...(limits.openFiles === undefined ? [] : [["Ulimit", `nofile=${limits.openFiles}`] as [string, string]]),
    ...(runtime.network === "bridge" ? [] : [["Network", runtime.network] as [string, string]]),
    ...runtime.capabilities.map((capability): [string, string] => ["AddCapability", capability]),
    ...runtime.devices.map((device): [string, string] => ["AddDevice", device]),
    ...(runtime.groups ?? []).map((group): [string, string] => ["GroupAdd", String(group)]),
    ...(runtime.privileged ? [] : [["NoNewPrivileges", "true"] as [string, string]]),
    ["RunInit", "true"],
    ["StopSignal", workload.stop.signal],
    ...args.map((arg): [string, string] => ["PodmanArgs", arg]),
  ];
  const restart = { never: "no", "on-failure": "on-failure", always: "always" }[workload.restart.policy];
  const unit = sections({
    Unit: [["Description", oneLine(`${workload.id} ${workload.version}`)]],
    Container: container,
    Service: [
      ["Restart", restart],
      ["TimeoutStopSec", String(Math.ceil(workload.stop.graceMs / 1000))],
    ],
    Install: [["WantedBy", "default.target"]],
  });
  return {
    files: [
      { name: `${name}.container`, content: unit },
      ...volumes.map((volume) => ({
        name: `${name}-${volume.name}.volume`,
        content: sections({ Volume: [] }),
      })),
      ...files.map((file) => ({ name: file.name, content: file.content })),
    ],
    notes: [
      ...secrets.map((key) => `make its secret first: podman secret create ${secretName(name, key)} FILE`),
      ...(health === undefined || isExec
        ? []
        : [`Quadlet has no check by ${health.probe.kind}: its health is not looked at`]),
      ...(workload.replicas > 1 ? [`it runs once there, not ${workload.replicas} times`] : []),
    ],
  };
}

function secretName(name: string, key: string): string {
  return `${name}-${key.toLowerCase().replaceAll("_", "-")}`;
}

/**
 * Without specifiers of systemd: no value has one.
 * @throws SvcError `not_possible` for a value that would be more than its line, or take in the next one
 */
function sections(all: Record<string, readonly (readonly [string, string])[]>): string {
  const line = ([key, value]: readonly [string, string]): string => {
    if (/[\0\n\r]|\\$/.test(value))
      throw new SvcError("not_possible", `${key}= cannot end in a backslash, or go over several lines`);
    return `${key}=${value.replaceAll("%", "%%")}\n`;
  };
  return Object.entries(all)
    .map(([section, lines]) => `[${section}]\n${lines.map(line).join("")}`)
    .join("\n");
}

/**
 * One word for systemd (systemd.syntax(7)): variables are no more than their letters. Podman leaves the lines in the unit that
 * it makes, where to systemd a carriage return ends one, too.
 */
function quoted(text: string): string {
  const escaped = text
    .replaceAll("\\", "\\\\")
    .replaceAll('"', '\\"')
    .replaceAll("\n", "\\n")
    .replaceAll(/[\0-\x1f\x7f]/g, (control) => `\\x${control.charCodeAt(0).toString(16).padStart(2, "0")}`)
    .replaceAll("$", () => "$$");
  return `"${escaped}"`;
}

function oneLine(text: string): string {
  return text.replaceAll(/[\x00-\x1f\x7f]+/g, " ");
}
