/** Exports an app as Podman Quadlet units (podman-systemd.unit(5)), for `~/.config/containers/systemd`. */
import { SvcError } from "../errors.ts";
import {
  applying,
  handedFiles,
  literal,
  mountedAs,
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

/** Variables whose whole value is a secret, which Podman stores. */
function podmanSecrets({ secretEnv, env }: Workload): string[] {
  return secretEnv.filter((key) => env[key] === secretPlaceholder);
}

function notesOf(workload: Workload): string[] {
  const { name, health, after } = workload;
  return applying(
    podmanSecrets(workload).map(
      (key) => `create its secret first: podman secret create ${secretName(name, key)} FILE`,
    ),
    health !== undefined &&
      health.probe.kind !== "exec" &&
      `Quadlet does not support ${health.probe.kind} health checks, so its health is not checked`,
    workload.replicas > 1 && `it runs once there instead of ${workload.replicas} times`,
    after
      .filter(({ condition }) => condition !== "service_started")
      .map((each) => waitingNote(each, "it starts right after that")),
  );
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
  const open = Object.entries(env).filter(([key]) => !secrets.includes(key));
  const check = health?.probe.kind === "exec" ? health : undefined;
  const container: Lines = [
    ["Image", image],
    ["ContainerName", name],
    ["Entrypoint", entrypoint && literal(JSON.stringify(entrypoint))],
    ["Exec", command.length === 0 ? [] : command.map(quoted).join(" ")],
    ["WorkingDir", runtime.workingDir],
    ["User", runtime.user],
    ["Environment", open.map(([key, value]) => quoted(`${key}=${value}`))],
    ["Secret", secrets.map((key) => `${secretName(name, key)},type=env,target=${key}`)],
    ["PublishPort", ports.map(publishedAs)],
    [
      "Volume",
      volumes.map(({ source, path, readOnly }) => `${source}.volume:${path}${readOnly ? ":ro" : ""}`),
    ],
    ["Volume", handedFiles(workload).map((file) => `./${file.name}:${file.path}:ro`)],
    [
      "Tmpfs",
      workload.inMemory.map(({ path, sizeBytes }) =>
        sizeBytes === undefined ? path : `${path}:size=${sizeBytes}`,
      ),
    ],
    ["Volume", runtime.mounts.map(mountedAs)],
    ["HealthCmd", check && literal(JSON.stringify(workload.healthArgv))],
    ["HealthInterval", check && `${check.intervalMs}ms`],
    ["HealthTimeout", check && `${check.timeoutMs}ms`],
    ["HealthStartPeriod", check && `${check.startPeriodMs}ms`],
    ["HealthRetries", check && String(check.retries)],
    ["Ulimit", limits.openFiles === undefined ? [] : `nofile=${limits.openFiles}`],
    ["Network", networksOf(project, workload)],
    ["AddCapability", runtime.capabilities],
    ["DropCapability", workload.droppedCapabilities],
    ["AddDevice", runtime.devices],
    ["GroupAdd", runtime.groups?.map(String)],
    ["ReadOnly", workload.isReadOnly ? "true" : []],
    ["NoNewPrivileges", runtime.privileged ? [] : "true"],
    ["RunInit", "true"],
    ["StopSignal", workload.stop.signal],
    ["PodmanArgs", args],
  ];
  const whole = workload.part === undefined ? project.id : `${project.id} ${workload.part}`;
  const restart = { never: "no", "on-failure": "on-failure", always: "always" }[workload.restart.policy];
  return sections({
    Unit: [
      ["Description", oneLine(`${whole} ${project.version}`)],
      ...workload.after.flatMap((each): Lines =>
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

/** Networks with the names by which other containers of the app find it. */
function networksOf({ networks }: Project, { runtime, names, networks: joined }: Workload): string[] {
  if (runtime.network !== "bridge") return [runtime.network];
  const external = new Set(networks.filter(({ isExternal }) => isExternal).map(({ name }) => name));
  const aliases = names.map((name) => `alias=${name}`).join(",");
  return joined.map((name) => `${external.has(name) ? name : `${name}.network`}${aliases && `:${aliases}`}`);
}

function secretName(name: string, key: string): string {
  return `${name}-${key.toLowerCase().replaceAll("_", "-")}`;
}

/** Keys with values: no line for an undefined value, one line per element of a list. */
type Lines = readonly (readonly [key: string, value: string | readonly string[] | undefined])[];

/**
 * Escapes systemd's specifiers, which no value uses.
 * @throws SvcError `not_possible` for a value with a line break, or with a backslash at its end
 */
function sections(all: Record<string, Lines>): string {
  const line = (key: string, value: string): string => {
    if (/[\0\n\r]|\\$/.test(value))
      throw new SvcError("not_possible", `${key}= cannot end in a backslash or contain a line break`);
    return `${key}=${value.replaceAll("%", "%%")}\n`;
  };
  return Object.entries(all)
    .map(([section, lines]) => {
      const texts = lines.flatMap(([key, value]) => [value ?? []].flat().map((each) => line(key, each)));
      return `[${section}]\n${texts.join("")}`;
    })
    .join("\n");
}

/**
 * Quotes a word for systemd (systemd.syntax(7)), without expanding variables. Podman copies the lines to the
 * generated unit, where a carriage return also ends a line.
 */
function quoted(text: string): string {
  const escaped = text
    .replaceAll("\\", "\\\\")
    .replaceAll('"', '\\"')
    .replaceAll("\n", "\\n")
    .replaceAll(/[\0-\x1f\x7f]/g, (control) => `\\x${control.charCodeAt(0).toString(16).padStart(2, "0")}`);
  return `"${literal(escaped)}"`;
}

function oneLine(text: string): string {
  return text.replaceAll(/[\x00-\x1f\x7f]+/g, " ");
}
