/** An app as units of Podman's Quadlet (podman-systemd.unit(5)), for `~/.config/containers/systemd`. */
import { basename } from "node:path";
import { SvcError } from "../errors.ts";
import {
  noted,
  publishedAs,
  secretPlaceholder,
  waitingNote,
  type ExportedApp,
  type Project,
  type Workload,
} from "./workload.ts";

export function toQuadlet(project: Project): ExportedApp {
  const { workloads, networks } = project;
  const sources = new Set(workloads.flatMap(({ volumes }) => volumes.map(({ source }) => source)));
  return {
    files: [
      ...workloads.map((workload) => ({
        name: `${workload.name}.container`,
        content: containerUnit(project, workload),
      })),
      ...[...sources].map((source) => ({ name: `${source}.volume`, content: sections({ Volume: [] }) })),
      ...networks
        .filter(({ isExternal }) => !isExternal)
        .map(({ name, isInternal }) => ({
          name: `${name}.network`,
          content: sections({ Network: isInternal ? [["Internal", "true"]] : [] }),
        })),
      ...workloads.flatMap(handedFiles).map(({ name, content }) => ({ name, content })),
    ],
    notes: workloads.flatMap((workload) => noted(workload, notesOf(workload))),
  };
}

/** With the names that they have beside the units. */
function handedFiles({ name, files }: Workload): { name: string; path: string; content: string }[] {
  return files.map((file, at) => ({ ...file, name: `${name}-${at}-${basename(file.path)}` }));
}

/** Variables that are nothing but a secret, which Podman keeps. */
function podmanSecrets({ secretEnv, env }: Workload): string[] {
  return secretEnv.filter((key) => env[key] === secretPlaceholder);
}

function notesOf(workload: Workload): string[] {
  const { name, health, after } = workload;
  return [
    ...podmanSecrets(workload).map(
      (key) => `make its secret first: podman secret create ${secretName(name, key)} FILE`,
    ),
    ...(health === undefined || health.probe.kind === "exec"
      ? []
      : [`Quadlet has no check by ${health.probe.kind}: its health is not looked at`]),
    ...(workload.replicas > 1 ? [`it runs once there, not ${workload.replicas} times`] : []),
    ...after
      .filter(({ condition }) => condition !== "service_started")
      .map((each) => waitingNote(each, "it starts right after that")),
  ];
}

function containerUnit(project: Project, workload: Workload): string {
  const { name, image, entrypoint, command, env, volumes, ports, health, limits, runtime } = workload;
  const secrets = podmanSecrets(workload);
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
    ...(entrypoint === undefined
      ? []
      : [["Entrypoint", literal(JSON.stringify(entrypoint))] as [string, string]]),
    ...(command.length === 0 ? [] : [["Exec", command.map(quoted).join(" ")] as [string, string]]),
    ...(runtime.workingDir === undefined ? [] : [["WorkingDir", runtime.workingDir] as [string, string]]),
    ...(runtime.user === undefined ? [] : [["User", runtime.user] as [string, string]]),
    ...Object.entries(env)
      .filter(([key]) => !secrets.includes(key))
      .map(([key, value]): [string, string] => ["Environment", quoted(`${key}=${value}`)]),
    ...secrets.map((key): [string, string] => ["Secret", `${secretName(name, key)},type=env,target=${key}`]),
    ...ports.map((port): [string, string] => ["PublishPort", publishedAs(port)]),
    ...volumes.map(({ source, path, readOnly }): [string, string] => [
      "Volume",
      `${source}.volume:${path}${readOnly ? ":ro" : ""}`,
    ]),
    ...handedFiles(workload).map((file): [string, string] => ["Volume", `./${file.name}:${file.path}:ro`]),
    ...workload.inMemory.map(({ path, sizeBytes }): [string, string] => [
      "Tmpfs",
      sizeBytes === undefined ? path : `${path}:size=${sizeBytes}`,
    ]),
    ...runtime.mounts.map(({ source, target, read_only: readOnly }): [string, string] => [
      "Volume",
      `${source}:${target}${readOnly === true ? ":ro" : ""}`,
    ]),
    ...(health === undefined || !isExec
      ? []
      : ([
          ["HealthCmd", literal(JSON.stringify(workload.healthArgv))],
          ["HealthInterval", `${health.intervalMs}ms`],
          ["HealthTimeout", `${health.timeoutMs}ms`],
          ["HealthStartPeriod", `${health.startPeriodMs}ms`],
          ["HealthRetries", String(health.retries)],
        ] as [string, string][])),
    ...(limits.openFiles === undefined ? [] : [["Ulimit", `nofile=${limits.openFiles}`] as [string, string]]),
    ...networksOf(project, workload).map((network): [string, string] => ["Network", network]),
    ...runtime.capabilities.map((capability): [string, string] => ["AddCapability", capability]),
    ...workload.droppedCapabilities.map((capability): [string, string] => ["DropCapability", capability]),
    ...runtime.devices.map((device): [string, string] => ["AddDevice", device]),
    ...(runtime.groups ?? []).map((group): [string, string] => ["GroupAdd", String(group)]),
    ...(workload.isReadOnly ? [["ReadOnly", "true"] as [string, string]] : []),
    ...(runtime.privileged ? [] : [["NoNewPrivileges", "true"] as [string, string]]),
    ["RunInit", "true"],
    ["StopSignal", workload.stop.signal],
    ...args.map((arg): [string, string] => ["PodmanArgs", arg]),
  ];
  const restart = { never: "no", "on-failure": "on-failure", always: "always" }[workload.restart.policy];
  return sections({
    Unit: [
      [
        "Description",
        oneLine(
          `${workload.part === undefined ? project.id : `${project.id} ${workload.part}`} ${project.version}`,
        ),
      ],
      ...workload.after.flatMap((each): [string, string][] =>
        ["Wants", "After"].map((key) => [key, `${each.name}.service`]),
      ),
    ],
    Container: container,
    Service: [
      ["Restart", restart],
      ["TimeoutStopSec", String(Math.ceil(workload.stop.graceMs / 1000))],
    ],
    Install: [["WantedBy", "default.target"]],
  });
}

/** Where the others of its app find it by its names. */
function networksOf({ networks }: Project, { runtime, names, networks: joined }: Workload): string[] {
  if (runtime.network !== "bridge") return [runtime.network];
  const external = new Set(networks.filter(({ isExternal }) => isExternal).map(({ name }) => name));
  const aliases = names.map((name) => `alias=${name}`).join(",");
  return joined.map((name) => `${external.has(name) ? name : `${name}.network`}${aliases && `:${aliases}`}`);
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
    .replaceAll(/[\0-\x1f\x7f]/g, (control) => `\\x${control.charCodeAt(0).toString(16).padStart(2, "0")}`);
  return `"${literal(escaped)}"`;
}

/** A dollar would be a variable of systemd. */
function literal(text: string): string {
  return text.replaceAll("$", () => "$$");
}

function oneLine(text: string): string {
  return text.replaceAll(/[\x00-\x1f\x7f]+/g, " ");
}
