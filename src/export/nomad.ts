/** An app as a job of Nomad in its API's JSON: `nomad job run -json FILE`. */
import { createHash } from "node:crypto";
import { posix } from "node:path";
import { addressNotes, type ExportedApp, type Workload } from "./workload.ts";

const nanosecondsPerMs = 1_000_000;
const bytesPerMb = 1024 * 1024;
/** What a task may take without a limit of its own. */
const defaultMemoryMb = 256;
const mhzPerCpu = 1_000;

export function toNomad(workload: Workload): ExportedApp {
  const { name, volumes, replicas, limits, restart, ports } = workload;
  const group = {
    Name: name,
    Count: replicas,
    RestartPolicy: {
      Attempts: restart.policy === "never" ? 0 : Math.max(1, restart.maxAttempts),
      Interval: Math.max(5_000, restart.resetAfterMs) * nanosecondsPerMs,
      Delay: Math.max(1_000, restart.delayMs) * nanosecondsPerMs,
      Mode: restart.policy === "always" ? "delay" : "fail",
    },
    ...(ports.length > 0 && {
      Networks: [
        {
          Mode: workload.runtime.network === "host" ? "host" : "bridge",
          ReservedPorts: reserved(ports).map((port) => ({
            Label: label(port.name),
            Value: port.port,
            To: port.inside,
          })),
        },
      ],
    }),
    ...(volumes.length > 0 && {
      Volumes: Object.fromEntries(
        volumes.map((volume) => [
          volume.name,
          { Name: volume.name, Type: "host", Source: `${name}-${volume.name}`, ReadOnly: false },
        ]),
      ),
    }),
    ...(ports.length > 0 && { Services: [serviceOf(workload)] }),
    Tasks: [taskOf(workload)],
  };
  const job = { Job: { ID: name, Name: name, Type: "service", Datacenters: ["dc1"], TaskGroups: [group] } };
  return {
    files: [{ name: `${name}.nomad.json`, content: `${JSON.stringify(job, undefined, 2)}\n` }],
    notes: [
      ...addressNotes(workload, "at the addresses of its node"),
      ...ports
        .filter(({ port, inside }) =>
          reserved(ports).some((each) => each.port === port && each.inside !== inside),
        )
        .map(
          ({ port, inside, protocol }) =>
            `its port ${port} leads to ${inside} for ${protocol} here alone: there one port is both tcp and udp`,
        ),
      ...volumes.map(
        (volume) => `declare the host volume "${name}-${volume.name}" on the clients that may run it`,
      ),
      ...(limits.memoryBytes === undefined
        ? [`it gets ${defaultMemoryMb} MB there: it has no limit here`]
        : []),
      ...(limits.openFiles === undefined
        ? []
        : ["its limit of open files is a ulimit of the docker driver there"]),
      ...(workload.secretEnv.length > 0
        ? ["its secrets stand in the job: better have them from Vault or a Nomad variable"]
        : []),
    ],
  };
}

function taskOf(workload: Workload): object {
  const { name, image, entrypoint, command, env, limits, volumes, files, runtime, stop, ports } = workload;
  const [program] = command;
  return {
    Name: name,
    Driver: "docker",
    Config: {
      image,
      init: true,
      ...(entrypoint !== undefined && { entrypoint: entrypoint.map(literal) }),
      ...(program !== undefined && { args: command.map(literal) }),
      ...(runtime.workingDir !== undefined && { work_dir: runtime.workingDir }),
      ...(ports.length > 0 && { ports: reserved(ports).map((port) => label(port.name)) }),
      ...(runtime.privileged ? { privileged: true } : { security_opt: ["no-new-privileges"] }),
      // With ports the group says it.
      ...(runtime.network !== "bridge" && ports.length === 0 && { network_mode: runtime.network }),
      ...(runtime.pid === "host" && { pid_mode: "host" }),
      ...(runtime.ipc === "host" && { ipc_mode: "host" }),
      ...(runtime.groups !== undefined && { group_add: runtime.groups.map(String) }),
      ...(runtime.devices.length > 0 && {
        devices: runtime.devices.map((path) => ({ host_path: path, container_path: path })),
      }),
      ...(runtime.capabilities.length > 0 && { cap_add: runtime.capabilities }),
      ...(limits.openFiles !== undefined && { ulimit: { nofile: String(limits.openFiles) } }),
      volumes: [
        ...files.map((file, at) => `local/${at}-${posix.basename(file.path)}:${file.path}`),
        ...runtime.mounts.map(
          ({ source, target, read_only: readOnly }) => `${source}:${target}${readOnly === true ? ":ro" : ""}`,
        ),
      ],
    },
    ...(runtime.user !== undefined && { User: runtime.user }),
    Env: Object.fromEntries(Object.entries(env).map(([key, value]) => [key, literal(value)])),
    Templates: files.map((file, at) => ({
      DestPath: `local/${at}-${posix.basename(file.path)}`,
      EmbeddedTmpl: file.content,
      // What svc writes is no template: no text has its own digest in it.
      LeftDelim: `<<<svc-${createHash("sha256").update(file.content).digest("hex").slice(0, 16)}:`,
      RightDelim: ":svc>>>",
      ChangeMode: "restart",
    })),
    VolumeMounts: volumes.map((volume) => ({
      Volume: volume.name,
      Destination: volume.path,
      ReadOnly: false,
    })),
    Resources: {
      CPU: Math.max(1, Math.round((limits.cpus ?? 0.5) * mhzPerCpu)),
      MemoryMB:
        limits.memoryBytes === undefined
          ? defaultMemoryMb
          : Math.max(10, Math.ceil(limits.memoryBytes / bytesPerMb)),
    },
    KillSignal: stop.signal,
    KillTimeout: stop.graceMs * nanosecondsPerMs,
  };
}

function serviceOf({ name, health, healthArgv, ports }: Workload): object {
  const [first] = ports;
  const own = { Name: name, Provider: "nomad", PortLabel: label(first?.name ?? "") };
  if (health === undefined) return own;
  const { probe, intervalMs, timeoutMs } = health;
  const times = {
    Interval: Math.max(1_000, intervalMs) * nanosecondsPerMs,
    Timeout: Math.max(1_000, timeoutMs) * nanosecondsPerMs,
  };
  if (probe.kind === "exec") {
    const [Command, ...Args] = healthArgv;
    return {
      ...own,
      Provider: "consul",
      Checks: [{ Type: "script", TaskName: name, Command, Args, ...times }],
    };
  }
  const check = {
    Type: probe.kind,
    PortLabel: labelOf(probe.port, ports),
    ...(probe.kind === "http" && { Path: probe.path }),
    ...times,
  };
  return { ...own, Checks: [check] };
}

/** Each number once: a port there is of tcp and of udp. */
function reserved(ports: Workload["ports"]): Workload["ports"] {
  return ports.filter((port, at) => ports.findIndex((each) => each.port === port.port) === at);
}

/** Of the one that has its number. @param name of a port */
function labelOf(name: string, ports: Workload["ports"]): string {
  const port = ports.find((each) => each.name === name)?.port;
  return label(reserved(ports).find((each) => each.port === port)?.name ?? name);
}

/** As labels of ports are: letters, digits and underscores. */
function label(name: string): string {
  return name.replaceAll(/[^A-Za-z0-9]/g, "_");
}

/** `${` would begin a variable there. */
function literal(text: string): string {
  return text.replaceAll("${", () => "$${");
}
