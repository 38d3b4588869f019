/** From a service of a checked compose document to the service that it is on a swarm. */
import { appLabels, composeProjectLabel, composeServiceLabel } from "../../docker/attribution.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import {
  bytesOf,
  durationSecs,
  environmentPairs,
  isSet,
  joinedNetworks,
  listOf,
  oddKeys,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
  wordsOf,
} from "../compose/compose-values.ts";
import { readInMemory, readServiceMount } from "../compose/service-mounts.ts";
import { spannedPorts, readServicePort } from "../compose/service-ports.ts";
import type { RunnableApp } from "../runtime.ts";
import { secretsDir, type HandedFile } from "./handed-files.ts";
import { placementOf, plain, scaledLabel, updateConfigs } from "./stack-plan.ts";
import type { ServiceSpec } from "./swarm-api.ts";

export interface ComposeServiceOptions {
  readonly storeId: string;
  /** Of the service on the swarm. */
  readonly name: string;
  /** Of the project. */
  readonly project: string;
  /** As the nodes find it. */
  readonly image: string;
  /** Of this machine. */
  readonly nodeId: string;
  /** What the networks of the document are called on the swarm, by their keys. */
  readonly networks: ReadonlyMap<string, string>;
  /** The volumes of the document, by their keys. */
  readonly volumes: ReadonlyMap<string, VolumePlan>;
  /** What its secrets and configs say, by their keys. */
  readonly contents: Readonly<Record<HandedFile["kind"], ReadonlyMap<string, HandedFile["content"]>>>;
  /** Values that nobody may see who inspects the service, by the names of their settings. */
  readonly hidden: ReadonlyMap<string, string>;
}

export interface VolumePlan {
  /** On the engine. */
  readonly name: string;
  readonly driver: string;
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  /** It is on one node. */
  readonly isLocal: boolean;
}

const nanosecondsPerSec = 1_000_000_000;

/** What a swarm gives a service, or what it does without. */
const known = new Set([
  ...["attach", "cap_add", "cap_drop", "command", "configs", "container_name", "cpus", "depends_on"],
  ...["deploy", "dns", "dns_opt", "dns_search", "entrypoint", "environment", "expose", "extra_hosts"],
  ...["group_add", "healthcheck", "hostname", "image", "init", "labels", "logging", "mem_limit"],
  ...["mem_reservation", "networks", "pids_limit", "platform", "ports", "read_only", "restart", "scale"],
  ...["secrets", "security_opt", "shm_size", "stdin_open", "stop_grace_period", "stop_signal", "sysctls"],
  ...["tmpfs", "tty", "ulimits", "user", "volumes", "working_dir"],
]);

export interface ComposeService {
  readonly spec: ServiceSpec;
  readonly files: readonly HandedFile[];
}

/** @throws SvcError `not_possible` for what no swarm gives a service, and for a secret that it would show */
export function composeService(
  app: RunnableApp,
  key: string,
  service: JsonObject,
  options: ComposeServiceOptions,
): ComposeService {
  requireKnown(app, key, service);
  const { storeId, name, nodeId, image, hidden } = options;
  const { ports: mode, replicas } = placementOf(app);
  const deploy = recordOf(service["deploy"]);
  const mounts = mountsOf(app, key, service, options);
  const isHere = mounts.some(({ isLocal }) => isLocal) || !image.includes("@");
  const ports = portsOf(app, key, service, mode);
  const named = Number(textOf(deploy["replicas"]) || textOf(service["scale"])) || undefined;
  const isScaled = named === undefined && !mounts.some(({ isLocal }) => isLocal);
  const env = environmentOf(service, hidden);
  const labels = { ...appLabels(app.id, storeId), [composeServiceLabel]: key };
  const hasMounts = mounts.some(({ isData }) => isData);
  const spec = plain({
    Name: name,
    Labels: { ...labels, ...(isScaled && { [scaledLabel]: "true" }) },
    TaskTemplate: {
      ContainerSpec: {
        ...containerSpec(app, service, image),
        Labels: { ...pairsOf(service["labels"]), ...labels, [composeProjectLabel]: options.project },
        Env: env.plain,
        Mounts: mounts.map(({ mount }) => mount),
      },
      Resources: resourcesOf(service, deploy),
      RestartPolicy: restartOf(app, textOf(service["restart"])),
      Placement: {
        Constraints: [
          ...textsOf(recordOf(deploy["placement"])["constraints"]),
          ...(isHere ? [`node.id==${nodeId}`] : []),
        ],
      },
      LogDriver: logDriverOf(service),
      Networks: networksOf(key, service, options.networks),
    },
    Mode: { Replicated: { Replicas: named ?? (isScaled ? replicas : 1) } },
    ...updateConfigs(app, { ports: mode, hasPorts: ports.length > 0, hasMounts }),
    EndpointSpec: { Mode: mode === "mesh" ? "vip" : "dnsrr", Ports: ports },
  }) as ServiceSpec;
  requireHidden(app, key, spec, hidden);
  return { spec, files: [...env.files, ...filesOf(app, key, service, options.contents)] };
}

/** Whether its mounts are on one node, or those of its files are. */
export function keepsData(service: JsonObject, volumes: ReadonlyMap<string, VolumePlan>): boolean {
  return listOf(service["volumes"]).some((volume) => {
    const { type, source } = readServiceMount(volume);
    return type === "bind" || (type === "volume" && volumes.get(source)?.isLocal !== false);
  });
}

function requireKnown(app: RunnableApp, key: string, service: JsonObject): void {
  const security = textsOf(service["security_opt"]).filter((text) => !/^no-new-privileges\b/.test(text));
  const mode = textOf(recordOf(service["deploy"])["mode"]);
  const cannot = [
    ...oddKeys(service, known).map((name) => `sets "${name}"`),
    ...security.map((text) => `sets the security option "${text}"`),
    ...(["", "replicated"].includes(mode) ? [] : [`has the mode "${mode}"`]),
  ];
  if (cannot.length === 0) return;
  const message = `service "${key}" of app "${app.id}" ${cannot.join(", ")}, which svc gives no service on a swarm`;
  throw new SvcError("not_possible", message);
}

function containerSpec(app: RunnableApp, service: JsonObject, image: string): object {
  const words = (name: string): string[] | undefined =>
    isSet(service[name]) ? wordsOf(service[name]) : undefined;
  const text = (name: string): string | undefined => textOf(service[name]) || undefined;
  const grace = durationSecs(text("stop_grace_period") ?? "10s");
  return {
    Image: image,
    Command: words("entrypoint"),
    Args: words("command"),
    Dir: text("working_dir"),
    User: text("user"),
    Groups: isSet(service["group_add"]) ? textsOf(service["group_add"]) : undefined,
    Hostname: text("hostname"),
    TTY: service["tty"] === true || undefined,
    OpenStdin: service["stdin_open"] === true || undefined,
    ReadOnly: service["read_only"] === true || undefined,
    Init: service["init"] !== false,
    StopSignal: text("stop_signal") ?? app.manifest.stop.signal,
    StopGracePeriod: Math.round(grace * nanosecondsPerSec),
    Healthcheck: healthcheckOf(recordOf(service["healthcheck"])),
    DNSConfig: {
      Nameservers: textsOf(service["dns"]),
      Search: textsOf(service["dns_search"]),
      Options: textsOf(service["dns_opt"]),
    },
    Hosts: hostsOf(service["extra_hosts"]),
    Sysctls: isSet(service["sysctls"]) ? pairsOf(service["sysctls"]) : undefined,
    Ulimits: ulimitsOf(service["ulimits"]),
    // Engines with an API before 1.44 take no note of it.
    Privileges: { NoNewPrivileges: true },
    CapabilityAdd: isSet(service["cap_add"]) ? textsOf(service["cap_add"]).map(capability) : undefined,
    // What a user's program could gain is empty, whatever its image says.
    CapabilityDrop: app.ownerUid === 0 ? textsOf(service["cap_drop"]).map(capability) : ["ALL"],
  };
}

function capability(name: string): string {
  return name === "ALL" || name.startsWith("CAP_") ? name : `CAP_${name}`;
}

function healthcheckOf(check: JsonObject): object | undefined {
  if (check["disable"] === true) return { Test: ["NONE"] };
  if (Object.keys(check).length === 0) return undefined;
  const { test = null, retries } = check;
  const nanoseconds = (name: string): number | undefined =>
    isSet(check[name]) ? Math.round(durationSecs(textOf(check[name])) * nanosecondsPerSec) : undefined;
  return {
    Test: typeof test === "string" ? ["CMD-SHELL", test] : isSet(test) ? textsOf(test) : undefined,
    Interval: nanoseconds("interval"),
    Timeout: nanoseconds("timeout"),
    StartPeriod: nanoseconds("start_period"),
    Retries: retries === undefined ? undefined : Number(textOf(retries)),
  };
}

/** `name:address`, as `/etc/hosts` has it turned around. */
function hostsOf(value: JsonValue | undefined): string[] {
  const pairs = Array.isArray(value)
    ? value.map((item): [string, string] => {
        const text = textOf(item);
        const at = text.search(/[:=]/);
        return [text.slice(0, at), text.slice(at + 1)];
      })
    : Object.entries(recordOf(value)).flatMap(([name, addresses]) =>
        textsOf(addresses).map((address): [string, string] => [name, address]),
      );
  return pairs.map(([name, address]) => `${address} ${name}`);
}

function ulimitsOf(value: JsonValue | undefined): object[] {
  return Object.entries(recordOf(value)).map(([Name, limit]) => {
    const { soft = limit, hard = limit } = typeof limit === "object" ? recordOf(limit) : {};
    return { Name, Soft: Number(textOf(soft)), Hard: Number(textOf(hard)) };
  });
}

function resourcesOf(service: JsonObject, deploy: JsonObject): object {
  const resources = recordOf(deploy["resources"]);
  const [limits, reservations] = [recordOf(resources["limits"]), recordOf(resources["reservations"])];
  const count = (value: JsonValue | undefined, by: number): number | undefined =>
    isSet(value) ? Math.round(Number(textOf(value)) * by) : undefined;
  const bytes = (value: JsonValue | undefined): number | undefined =>
    isSet(value) ? bytesOf(value) : undefined;
  return {
    Limits: {
      NanoCPUs: count(limits["cpus"] ?? service["cpus"], 1e9),
      MemoryBytes: bytes(limits["memory"] ?? service["mem_limit"]),
      Pids: count(limits["pids"] ?? service["pids_limit"], 1),
    },
    Reservations: {
      NanoCPUs: count(reservations["cpus"], 1e9),
      MemoryBytes: bytes(reservations["memory"] ?? service["mem_reservation"]),
    },
  };
}

/** @param word `no`, `always`, `unless-stopped`, `on-failure` or `on-failure:N` */
function restartOf({ manifest: { restart } }: RunnableApp, word: string): object {
  const [policy = "", attempts = "0"] = word.split(":");
  const Condition = { no: "none", "on-failure": "on-failure" }[policy] ?? "any";
  return {
    ...{ Condition, Delay: restart.delayMs * 1_000_000, MaxAttempts: Number(attempts) },
    Window: restart.resetAfterMs * 1_000_000,
  };
}

function logDriverOf(service: JsonObject): object | undefined {
  const { driver, options } = recordOf(service["logging"]);
  return isSet(driver) ? { Name: textOf(driver), Options: pairsOf(options) } : undefined;
}

function networksOf(key: string, service: JsonObject, names: ReadonlyMap<string, string>): object[] {
  return joinedNetworks(service).map(([network, how]) => ({
    Target: names.get(network) ?? network,
    Aliases: [...new Set([key, ...textsOf(how["aliases"])])],
  }));
}

function portsOf(
  app: RunnableApp,
  key: string,
  service: JsonObject,
  mode: "host" | "mesh",
): { PublishedPort: number }[] {
  return listOf(service["ports"]).flatMap((value) => {
    const port = readServicePort(value);
    const pairs = spannedPorts(port);
    if (pairs === undefined) {
      const message = `service "${key}" of app "${app.id}" publishes ${port.published} as ${port.target}: on a swarm one port for each`;
      throw new SvcError("not_possible", message);
    }
    return pairs.map(({ target, published }) => ({
      Protocol: port.protocol,
      TargetPort: target,
      PublishedPort: published,
      PublishMode: mode === "mesh" ? "ingress" : "host",
    }));
  });
}

interface PlannedMount {
  readonly mount: object;
  /** Of this machine. */
  readonly isLocal: boolean;
  /** Two tasks at a time could spoil it. */
  readonly isData: boolean;
}

/** One that nobody else sees. */
function ofTask(mount: object): PlannedMount {
  return { mount, isLocal: false, isData: false };
}

function inMemory(Target: string, SizeBytes: number | undefined): PlannedMount {
  return ofTask({ Type: "tmpfs", Target, TmpfsOptions: { SizeBytes } });
}

function mountsOf(
  app: RunnableApp,
  key: string,
  service: JsonObject,
  { volumes }: ComposeServiceOptions,
): PlannedMount[] {
  const mounts = listOf(service["volumes"]).map((volume): PlannedMount => {
    const { type, source, target: Target, readOnly: ReadOnly, noCopy, sizeBytes } = readServiceMount(volume);
    switch (type) {
      case "tmpfs":
        return inMemory(Target, sizeBytes);
      case "bind": {
        const BindOptions = { Propagation: "rprivate" };
        const mount = { Type: type, Source: source, Target, ReadOnly, BindOptions };
        return { mount, isLocal: true, isData: !ReadOnly };
      }
      case "volume": {
        // Without a name.
        if (source === "") return ofTask({ Type: type, Target });
        const found = volumes.get(source);
        const VolumeOptions = {
          NoCopy: noCopy,
          Labels: found?.labels,
          DriverConfig: { Name: found?.driver || "local", Options: found?.options },
        };
        const mount = { Type: type, Source: found?.name ?? source, Target, ReadOnly, VolumeOptions };
        return { mount, isLocal: found?.isLocal !== false, isData: !ReadOnly };
      }
      default:
        throw new SvcError(
          "not_possible",
          `service "${key}" of app "${app.id}" mounts "${source}" as ${type}, which svc gives no service on a swarm`,
        );
    }
  });
  return [
    ...textsOf(service["tmpfs"])
      .map(readInMemory)
      .map(({ target, sizeBytes }) => inMemory(target, sizeBytes)),
    ...(isSet(service["shm_size"]) ? [inMemory("/dev/shm", bytesOf(service["shm_size"]))] : []),
    ...mounts,
  ];
}

/** A variable that is a secret is read from a file, as the images of databases do. */
function environmentOf(
  service: JsonObject,
  hidden: ReadonlyMap<string, string>,
): { plain: string[]; files: HandedFile[] } {
  const pairs = Object.entries(environmentPairs(service["environment"]));
  const values = new Set(hidden.values());
  const isSecret = ([, value]: [string, string]): boolean => values.has(value);
  const secret = pairs.filter(isSecret);
  return {
    plain: [
      ...pairs.filter((pair) => !isSecret(pair)).map(([name, value]) => `${name}=${value}`),
      ...secret.map(([name]) => `${name}_FILE=${secretsDir}/${name}`),
    ],
    files: secret.map(([name, content]) => ({ kind: "secrets", path: `${secretsDir}/${name}`, content })),
  };
}

function filesOf(
  app: RunnableApp,
  key: string,
  service: JsonObject,
  contents: ComposeServiceOptions["contents"],
): HandedFile[] {
  return (["secrets", "configs"] as const).flatMap((kind) =>
    listOf(service[kind]).map((value): HandedFile => {
      const { source = value, target = null } = recordOf(value);
      const name = textOf(source);
      const content = contents[kind].get(name);
      if (content === undefined) {
        const message = `service "${key}" of app "${app.id}" uses "${name}" of the ${kind}, which has no file in the package: svc hands over no other`;
        throw new SvcError("not_possible", message);
      }
      const place = textOf(target) || name;
      const path = place.startsWith("/")
        ? place
        : kind === "secrets"
          ? `${secretsDir}/${place}`
          : `/${place}`;
      return { kind, path, content };
    }),
  );
}

function requireHidden(
  app: RunnableApp,
  key: string,
  spec: ServiceSpec,
  hidden: ReadonlyMap<string, string>,
): void {
  const text = JSON.stringify(spec);
  const shown = [...hidden].find(([, value]) => text.includes(JSON.stringify(value).slice(1, -1)));
  if (shown === undefined) return;
  const message = `service "${key}" of app "${app.id}" gets the secret "${shown[0]}" in its command or as a part of a variable, where a swarm shows it to whoever inspects the service: have it read from a variable of its own, or from a file`;
  throw new SvcError("not_possible", message);
}
