/** Exports an app as a Nomad job in the API's JSON: `nomad job run -json FILE`. */
import { createHash } from "node:crypto";
import { posix } from "node:path";
import {
  addressNotes,
  applying,
  mountedAs,
  noted,
  waitingNote,
  type ExportedApp,
  type Project,
  type Workload,
} from "./workload.ts";

const nanosecondsPerMs = 1_000_000;
const bytesPerMb = 1024 * 1024;
/** Memory of a task without a limit. */
const defaultMemoryMb = 256;
const mhzPerCpu = 1_000;

export function toNomad(project: Project): ExportedApp {
  const { name, workloads } = project;
  const [first] = workloads;
  const ports = reserved(workloads.flatMap((workload) => workload.ports));
  const volumes = new Map(
    workloads.flatMap((each) => each.volumes.map((volume) => [volume.name, volume.source])),
  );
  const isTogether = workloads.some(({ names }) => names.length > 0);
  const isHost = workloads.some(({ runtime }) => runtime.network === "host");
  // All checks of a group need the same provider.
  const provider = workloads.some(isScript) ? "consul" : "nomad";
  const services = workloads.flatMap((workload) => serviceOf(workload, ports, provider));
  const group = {
    Name: name,
    Count: isTogether ? 1 : (first?.replicas ?? 1),
    ...(ports.length + (isTogether ? 1 : 0) > 0 && {
      Networks: [
        {
          Mode: isHost ? "host" : "bridge",
          ...(ports.length > 0 && {
            ReservedPorts: ports.map((port) => ({
              Label: label(port.name),
              Value: port.port,
              To: port.inside,
            })),
          }),
        },
      ],
    }),
    ...(volumes.size > 0 && {
      Volumes: Object.fromEntries(
        [...volumes].map(([volume, Source]) => [
          volume,
          { Name: volume, Type: "host", Source, ReadOnly: false },
        ]),
      ),
    }),
    ...(services.length > 0 && { Services: services }),
    Tasks: workloads.map((workload) => taskOf(workload, workloads, ports)),
  };
  const job = { Job: { ID: name, Name: name, Type: "service", Datacenters: ["dc1"], TaskGroups: [group] } };
  return {
    files: [{ name: `${name}.nomad.json`, content: `${JSON.stringify(job, undefined, 2)}\n` }],
    notes: applying(
      workloads.flatMap((workload) => noted(workload, notesOf(workload, ports))),
      [...volumes.values()].map((source) => `declare the host volume "${source}" on the clients that run it`),
      isTogether &&
        "the services are tasks of one group and share the group's network: each name resolves to 127.0.0.1",
      collisions(workloads),
    ),
  };
}

function isScript({ health }: Workload): boolean {
  return health?.probe.kind === "exec";
}

function notesOf(workload: Workload, all: Workload["ports"]): string[] {
  const { limits, ports, runtime } = workload;
  const isTogether = workload.names.length > 0;
  return applying(
    addressNotes(workload, "at the addresses of its node"),
    ports
      .filter(({ port, inside }) => all.some((each) => each.port === port && each.inside !== inside))
      .map(
        ({ port, inside, protocol }) =>
          `its port ${port} leads to ${inside} for ${protocol} only here: there a port is both tcp and udp`,
      ),
    limits.memoryBytes === undefined && `it gets ${defaultMemoryMb} MB there, because it has no limit here`,
    limits.openFiles !== undefined && "its limit of open files becomes a ulimit of the docker driver there",
    workload.secretEnv.length > 0 &&
      "its secrets are part of the job; better read them from Vault or a Nomad variable",
    isScript(workload) && "its command health check requires Consul there",
    isTogether && workload.replicas > 1 && `it runs once there instead of ${workload.replicas} times`,
    isTogether && runtime.network === "none" && "it has no network here, but shares that of its group there",
    workload.after.map((each) => waitingNote(each, "it starts with it")),
  );
}

/** Ports at which two tasks would both listen. */
function collisions(workloads: readonly Workload[]): string[] {
  const parts = Map.groupBy(
    workloads.flatMap(({ part = "", ports }) =>
      [...new Set(ports.map(({ inside, protocol }) => `${inside}/${protocol}`))].map((port) => ({
        part,
        port,
      })),
    ),
    ({ port }) => port,
  );
  return [...parts]
    .filter(([, all]) => all.length > 1)
    .map(
      ([port, all]) =>
        `services ${all.map(({ part }) => `"${part}"`).join(" and ")} listen at the same port, ${port}, but only one task of a group can; change the port of the others`,
    );
}

function taskOf(workload: Workload, all: readonly Workload[], reservedPorts: Workload["ports"]): object {
  const { name, image, entrypoint, command, env, limits, volumes, files, runtime, stop, ports, restart } =
    workload;
  const isTogether = workload.names.length > 0;
  const isGroups = isTogether || reservedPorts.length > 0;
  const labels = new Set(ports.map((port) => labelOf(port.name, ports, reservedPorts)));
  return {
    Name: name,
    Driver: "docker",
    Config: {
      image,
      init: true,
      ...(entrypoint !== undefined && { entrypoint: entrypoint.map(literal) }),
      ...(command.length > 0 && { args: command.map(literal) }),
      ...(runtime.workingDir !== undefined && { work_dir: runtime.workingDir }),
      ...(labels.size > 0 && { ports: [...labels] }),
      ...(runtime.privileged ? { privileged: true } : { security_opt: ["no-new-privileges"] }),
      // With ports, the group sets the network.
      ...(runtime.network !== "bridge" && !isGroups && { network_mode: runtime.network }),
      ...(runtime.pid === "host" && { pid_mode: "host" }),
      ...(runtime.ipc === "host" && { ipc_mode: "host" }),
      ...(runtime.groups !== undefined && { group_add: runtime.groups.map(String) }),
      ...(runtime.devices.length > 0 && {
        devices: runtime.devices.map((device) => {
          const [from, to = from] = device.split(":");
          return { host_path: from, container_path: to };
        }),
      }),
      ...(runtime.capabilities.length > 0 && { cap_add: runtime.capabilities }),
      ...(workload.droppedCapabilities.length > 0 && { cap_drop: workload.droppedCapabilities }),
      ...(workload.isReadOnly && { readonly_rootfs: true }),
      ...(workload.inMemory.length > 0 && {
        mounts: workload.inMemory.map(({ path, sizeBytes }) => ({
          ...{ type: "tmpfs", target: path },
          ...(sizeBytes !== undefined && { tmpfs_options: { size: sizeBytes } }),
        })),
      }),
      // The first task writes /etc/hosts for all, so all must have the same entries.
      ...(isTogether && {
        extra_hosts: [...new Set(all.flatMap(({ names }) => names))].map((each) => `${each}:127.0.0.1`),
      }),
      ...(limits.openFiles !== undefined && { ulimit: { nofile: String(limits.openFiles) } }),
      volumes: [
        ...files.map((file, at) => `local/${at}-${posix.basename(file.path)}:${file.path}`),
        ...runtime.mounts.map(mountedAs),
      ],
    },
    ...(runtime.user !== undefined && { User: runtime.user }),
    Env: Object.fromEntries(Object.entries(env).map(([key, value]) => [key, literal(value)])),
    Templates: files.map((file, at) => ({
      DestPath: `local/${at}-${posix.basename(file.path)}`,
      EmbeddedTmpl: file.content,
      // The content is not a template: no text contains its own digest.
      LeftDelim: `<<<svc-${createHash("sha256").update(file.content).digest("hex").slice(0, 16)}:`,
      RightDelim: ":svc>>>",
      ChangeMode: "restart",
    })),
    VolumeMounts: volumes.map((volume) => ({
      Volume: volume.name,
      Destination: volume.path,
      ReadOnly: volume.readOnly,
    })),
    Resources: {
      CPU: Math.max(1, Math.round((limits.cpus ?? 0.5) * mhzPerCpu)),
      MemoryMB:
        limits.memoryBytes === undefined
          ? defaultMemoryMb
          : Math.max(10, Math.ceil(limits.memoryBytes / bytesPerMb)),
    },
    RestartPolicy: {
      Attempts: restart.policy === "never" ? 0 : Math.max(1, restart.maxAttempts),
      Interval: Math.max(5_000, restart.resetAfterMs) * nanosecondsPerMs,
      Delay: Math.max(1_000, restart.delayMs) * nanosecondsPerMs,
      Mode: restart.policy === "always" ? "delay" : "fail",
    },
    KillSignal: stop.signal,
    KillTimeout: stop.graceMs * nanosecondsPerMs,
  };
}

function serviceOf(workload: Workload, all: Workload["ports"], provider: "nomad" | "consul"): object[] {
  const { name, health, healthArgv, ports } = workload;
  const [first] = ports;
  if (first === undefined && !isScript(workload)) return [];
  const own = {
    ...{ Name: name, Provider: provider },
    ...(first !== undefined && { PortLabel: labelOf(first.name, ports, all) }),
  };
  if (health === undefined) return [own];
  const { probe, intervalMs, timeoutMs } = health;
  const times = {
    Interval: Math.max(1_000, intervalMs) * nanosecondsPerMs,
    Timeout: Math.max(1_000, timeoutMs) * nanosecondsPerMs,
  };
  if (probe.kind === "exec") {
    const [Command, ...Args] = healthArgv;
    return [{ ...own, Checks: [{ Type: "script", TaskName: name, Command, Args, ...times }] }];
  }
  const check = {
    Type: probe.kind,
    PortLabel: labelOf(probe.port, ports, all),
    ...(probe.kind === "http" && { Path: probe.path }),
    ...times,
  };
  return [{ ...own, Checks: [check] }];
}

/** Each number once, because a port there is both tcp and udp. */
function reserved(ports: Workload["ports"]): Workload["ports"] {
  return ports.filter((port, at) => ports.findIndex((each) => each.port === port.port) === at);
}

/** Label of the reserved port with the same number. @param name of one of `ports` @param all ports of the group */
function labelOf(name: string, ports: Workload["ports"], all: Workload["ports"]): string {
  const port = ports.find((each) => each.name === name)?.port;
  return label(all.find((each) => each.port === port)?.name ?? name);
}

/** A valid port label: letters, digits and underscores. */
function label(name: string): string {
  return name.replaceAll(/[^A-Za-z0-9]/g, "_");
}

/** `${` would start a variable there. */
function literal(text: string): string {
  return text.replaceAll("${", () => "$${");
}
