/** Converts a compose project to containers, for engines that do not read compose files. */
import { posix } from "node:path";
import type { JsonObject } from "../lib/json.ts";
import type { HealthCheck } from "../packages/manifest/manifest.ts";
import { resolvePorts, resolveSettings } from "../packages/settings/settings.ts";
import { appTree } from "../runtimes/app-tree.ts";
import {
  bytesOf,
  durationSecs,
  environmentPairs,
  externalName,
  isSet,
  joinedNetworks,
  listOf,
  namedParts,
  unknownKeys,
  recordOf,
  textOf,
  textsOf,
  wordsOf,
} from "../runtimes/compose/compose-values.ts";
import { readServicePort, spannedPorts } from "../runtimes/compose/service-ports.ts";
import { anyAddress } from "../runtimes/containers/published-ports.ts";
import type { ResolvedProject } from "../runtimes/capabilities.ts";
import type { RunnableApp } from "../runtimes/runnable-app.ts";
import { replaceMarks, type MarkedApp } from "./project-secrets.ts";
import {
  applying,
  builtImage,
  dataNote,
  noteAbout,
  ownNotes,
  plainName,
  secretNotes,
  secretPaths,
  secretVariables,
  type Dependency,
  type Project,
  type ProjectNetwork,
  type Workload,
  type WorkloadPort,
} from "./workload.ts";
import { storageOf, type StorageSource } from "./service-storage.ts";

/** Keys of a service that are exported, or that svc sets itself. */
const carried = new Set([
  ...["cap_add", "cap_drop", "command", "configs", "cpus", "depends_on", "deploy", "devices"],
  ...["entrypoint", "environment", "expose", "group_add", "healthcheck", "image", "init", "ipc", "logging"],
  ...["mem_limit", "network_mode", "networks", "pid", "ports", "privileged", "read_only", "restart", "scale"],
  ...["secrets", "security_opt", "shm_size", "stop_grace_period", "stop_signal", "tmpfs", "ulimits"],
  ...["user", "volumes", "working_dir"],
]);

const healthDefaults = { startPeriodMs: 0, intervalMs: 30_000, timeoutMs: 30_000, retries: 3 };

interface ProjectSource extends StorageSource {
  /** Names of the services on the engine, by their keys. */
  readonly names: ReadonlyMap<string, string>;
  readonly networks: ReadonlyMap<string, ProjectNetwork>;
}

/** @param project the project of the marked app */
export function composeProject({ app, secrets }: MarkedApp, project: ResolvedProject): Project {
  const document = replaceMarks(project.document, secrets);
  const settings = replaceMarks(app.settings, secrets);
  const safe = { ...app, settings };
  const notes = applying(
    secretNotes(secrets),
    ownNotes(app.manifest),
    app.ownerUid !== 0 &&
      `services without a user run as their owner here (uid ${app.uid}), but as the user of their image there`,
  );
  for (const [key, value] of Object.entries(recordOf(document["volumes"]))) {
    const { external, driver, driver_opts: options } = recordOf(value);
    if (isSet(external)) notes.push(`volume "${key}" is external here; the export creates its own`);
    else if (!["", "local"].includes(textOf(driver)) || isSet(options))
      notes.push(`the driver and options of volume "${key}" are not exported`);
  }
  const secretFiles = secretPaths(app.manifest, secrets);
  const keys = Object.keys(recordOf(document["services"]));
  const source: ProjectSource = {
    ...{ app: safe, project, document, note: (text) => void notes.push(text) },
    names: ownNames(app.id, keys),
    networks: networksOf(app, document, (text) => void notes.push(text)),
    written: new Map(
      resolveSettings(app.manifest, settings).files.map(({ path, content }) => [
        posix.join(app.directory, appTree.data, path),
        { content, isSecret: secretFiles.has(path) },
      ]),
    ),
  };
  const workloads = keys.map((key) => workloadOf(source, key));
  if (workloads.some(({ volumes }) => volumes.length > 0)) notes.push(dataNote);
  return {
    ...{ name: plainName(app.id), id: app.id, version: app.version },
    ...{ networks: [...source.networks.values()], workloads: withAppHealth(source, workloads), notes },
  };
}

/** Unique names, even for similar keys. */
function ownNames(id: string, keys: readonly string[]): Map<string, string> {
  const names = new Map<string, string>();
  for (const key of keys) {
    const name = plainName(`${id}-${key}`);
    const isTaken = [...names.values()].includes(name);
    names.set(key, isTaken ? `${name.slice(0, 58)}-${names.size}` : name);
  }
  return names;
}

function networksOf(
  { id }: RunnableApp,
  document: JsonObject,
  note: (text: string) => void,
): Map<string, ProjectNetwork> {
  const declared: JsonObject = { default: null, ...recordOf(document["networks"]) };
  return new Map(
    Object.entries(declared).map(([key, value]) => {
      const network = recordOf(value);
      const { internal, external, driver, driver_opts: options, ipam } = network;
      if (isSet(external)) note(`network "${key}" is external; create it before the start`);
      if (!["", "bridge"].includes(textOf(driver)) || isSet(options) || isSet(recordOf(ipam)["config"]))
        note(`the driver, options and addresses of network "${key}" are not exported`);
      return [
        key,
        {
          name: plainName(isSet(external) ? externalName(network, key) : `${id}-${key}`),
          isInternal: internal === true,
          isExternal: isSet(external),
        },
      ];
    }),
  );
}

function workloadOf(all: ProjectSource, key: string): Workload {
  const { app, document, project, names, networks } = all;
  const service = recordOf(recordOf(document["services"])[key]);
  const source = { ...all, note: (text: string) => all.note(noteAbout(key, text)) };
  noteUnexported(source, service);
  if (project.built.has(key))
    source.note("its image is built from the package; build it, push it, and set it in the manifest");
  const text = (name: string): string | undefined => textOf(service[name]) || undefined;
  const words = (name: string): string[] | undefined =>
    isSet(service[name]) ? wordsOf(service[name]) : undefined;
  const joined = joinedNetworks(service);
  const env = environmentPairs(service["environment"]);
  const storage = storageOf(source, service);
  const health = healthOf(source, recordOf(service["healthcheck"]));
  const [user, workingDir] = [text("user"), text("working_dir")];
  const isOwners = app.ownerUid !== 0 && user?.startsWith(`${app.uid}:`) === true;
  const { numbered = [], named = [] } = Object.groupBy(textsOf(service["group_add"]), (group) =>
    /^\d+$/.test(group) ? "numbered" : "named",
  );
  if (named.length > 0)
    source.note(`its groups ${named.join(", ")} are not exported, because they have no numbers`);
  return {
    ...{ name: names.get(key) ?? key, part: key, env, secretEnv: secretVariables(env), health, ...storage },
    names: [...new Set([key, ...joined.flatMap(([, how]) => textsOf(how["aliases"]))])],
    networks: isSet(service["network_mode"])
      ? []
      : joined.flatMap(([network]) => networks.get(network)?.name ?? []),
    after: dependenciesOf(service, names),
    image: project.built.has(key) ? builtImage(app, key) : textOf(service["image"]),
    runtime: {
      ...(user !== undefined && !isOwners && { user }),
      ...(workingDir !== undefined && { workingDir }),
      privileged: isSet(service["privileged"]),
      network: networkModeOf(source, text("network_mode")),
      pid: text("pid") === "host" ? "host" : "container",
      ipc: text("ipc") === "host" ? "host" : "container",
      devices: devicesOf(source, service),
      ...(numbered.length > 0 && { groups: numbered.map(Number) }),
      capabilities: textsOf(service["cap_add"]),
      mounts: storage.mounts,
    },
    droppedCapabilities: textsOf(service["cap_drop"]),
    isReadOnly: service["read_only"] === true,
    entrypoint: words("entrypoint"),
    command: words("command") ?? [],
    ports: portsOf(source, key, service),
    replicas: replicasOf(app, service, storage.volumes.length > 0),
    healthArgv: health?.probe.kind === "exec" ? health.probe.argv : [],
    limits: limitsOf(service),
    stop: {
      signal: (text("stop_signal") ?? "SIGTERM") as NodeJS.Signals,
      graceMs: durationSecs(text("stop_grace_period") ?? "10s") * 1000,
    },
    restart: { ...app.manifest.restart, policy: policyOf(textOf(service["restart"])) },
  };
}

/** Notes all keys that are not exported. */
function noteUnexported({ app, note }: ProjectSource, service: JsonObject): void {
  const deploy = recordOf(service["deploy"]);
  const security = textsOf(service["security_opt"]).filter((text) => !/^no-new-privileges\b/.test(text));
  const { limits, ...resources } = recordOf(deploy["resources"]);
  // svc itself sets these for regular users' services.
  const [own, ownLimits] = app.ownerUid === 0 ? [[], []] : [["pids_limit"], ["nproc"]];
  const rest = [
    ...unknownKeys(service, [...carried, ...own]),
    ...security.map((text) => `security_opt ${text}`),
    ...unknownKeys(deploy, ["replicas", "resources"]).map((name) => `deploy.${name}`),
    ...unknownKeys(resources, []).map((name) => `deploy.resources.${name}`),
    ...unknownKeys(recordOf(limits), ["cpus", "memory"]).map((name) => `deploy.resources.limits.${name}`),
    ...Object.keys(recordOf(service["ulimits"]))
      .filter((name) => !["nofile", ...ownLimits].includes(name))
      .map((name) => `ulimits.${name}`),
    ...(["", "json-file"].includes(textOf(recordOf(service["logging"])["driver"])) ? [] : ["logging"]),
    ...["pid", "ipc"].filter(
      (name) => isSet(service[name]) && !["host", "private", "shareable"].includes(textOf(service[name])),
    ),
  ];
  if (rest.length > 0) note(`${rest.join(", ")} ${rest.length === 1 ? "is" : "are"} not exported`);
}

function networkModeOf({ note }: ProjectSource, mode = ""): Workload["runtime"]["network"] {
  if (mode === "host" || mode === "none") return mode;
  if (!["", "bridge", "default"].includes(mode))
    note(`it shares the network of ${mode} here; there it has its own`);
  return "bridge";
}

function dependenciesOf(service: JsonObject, names: ReadonlyMap<string, string>): Dependency[] {
  return namedParts(service["depends_on"]).flatMap(([part, how]) => {
    const name = names.get(part);
    const condition = textOf(how["condition"]) || "service_started";
    return name === undefined ? [] : [{ name, part, condition }];
  });
}

/** Exports source and target of `SOURCE[:TARGET[:PERMISSIONS]]`. */
function devicesOf({ note }: ProjectSource, service: JsonObject): string[] {
  return listOf(service["devices"]).map((device) => {
    const { source = device, target = null } = recordOf(device);
    const [from = "", to = textOf(target)] = textOf(source).split(":");
    note(`it uses the host device ${from}`);
    return to === "" || to === from ? from : `${from}:${to}`;
  });
}

function portsOf({ app, note }: ProjectSource, key: string, service: JsonObject): WorkloadPort[] {
  const known = new Map(
    resolvePorts(app.manifest, app.settings).map(({ name, port, protocol }) => [`${port}/${protocol}`, name]),
  );
  return listOf(service["ports"]).flatMap((value) => {
    const read = readServicePort(value);
    if (!["tcp", "udp"].includes(read.protocol))
      note(`its port ${read.target}/${read.protocol} is not exported`);
    const pairs = spannedPorts(read);
    if (pairs === undefined)
      note(`it publishes ${read.target} at some ports of ${read.published}; set single ports`);
    if (pairs === undefined || !["tcp", "udp"].includes(read.protocol)) return [];
    const protocol = read.protocol as WorkloadPort["protocol"];
    return pairs.map(({ target, published }) => {
      if (published === 0)
        note(`its port ${target} is published at any free port here, but at ${target} there`);
      const port = published || target;
      return {
        ...{ protocol, port, inside: target, address: read.address === "" ? anyAddress : read.address },
        name: known.get(`${published}/${protocol}`) ?? plainName(`${key}-${port}-${protocol}`),
      };
    });
  });
}

function healthOf({ note }: ProjectSource, check: JsonObject): HealthCheck | undefined {
  if (check["disable"] === true || !isSet(check)) return undefined;
  const { test = null } = check;
  const [kind = "", ...argv] = typeof test === "string" ? ["CMD-SHELL", test] : textsOf(test);
  if (kind === "NONE") return undefined;
  if (kind === "") {
    note("its health check is its image's, which is not exported");
    return undefined;
  }
  const ms = (name: string): number | undefined =>
    isSet(check[name]) ? durationSecs(textOf(check[name])) * 1000 : undefined;
  return {
    probe: { kind: "exec", argv: kind === "CMD-SHELL" ? ["/bin/sh", "-c", ...argv] : argv },
    startPeriodMs: ms("start_period") ?? healthDefaults.startPeriodMs,
    intervalMs: ms("interval") ?? healthDefaults.intervalMs,
    timeoutMs: ms("timeout") ?? healthDefaults.timeoutMs,
    retries: isSet(check["retries"]) ? Number(textOf(check["retries"])) : healthDefaults.retries,
  };
}

/** The manifest's health check belongs to the service that publishes its port, unless that has its own. */
function withAppHealth({ app, note }: ProjectSource, workloads: readonly Workload[]): Workload[] {
  const { health } = app.manifest;
  if (health === undefined || health.probe.kind === "exec") return [...workloads];
  const { port: name } = health.probe;
  const found = workloads.find(({ ports }) => ports.some((port) => port.name === name));
  if (found === undefined || found.health !== undefined) {
    note(`its ${health.probe.kind} health check is not exported`);
    return [...workloads];
  }
  return workloads.map((workload) => (workload === found ? { ...workload, health } : workload));
}

function replicasOf({ placement }: RunnableApp, service: JsonObject, hasData: boolean): number {
  const named = Number(textOf(recordOf(service["deploy"])["replicas"]) || textOf(service["scale"]));
  return named || (hasData ? 1 : (placement?.replicas ?? 1));
}

function limitsOf(service: JsonObject): Workload["limits"] {
  const limits = recordOf(recordOf(recordOf(service["deploy"])["resources"])["limits"]);
  const [memory, cpus] = [limits["memory"] ?? service["mem_limit"], limits["cpus"] ?? service["cpus"]];
  const { nofile = null } = recordOf(service["ulimits"]);
  const files = typeof nofile === "object" ? recordOf(nofile)["soft"] : nofile;
  return {
    ...(isSet(memory) && { memoryBytes: bytesOf(memory) }),
    ...(isSet(cpus) && { cpus: Number(textOf(cpus)) }),
    ...(isSet(files) && { openFiles: Number(textOf(files)) }),
  };
}

/** @param word value of `restart`: `no`, `always`, `unless-stopped`, `on-failure` or `on-failure:N` */
function policyOf(word: string): Workload["restart"]["policy"] {
  if (word === "no") return "never";
  return word.startsWith("on-failure") ? "on-failure" : "always";
}
