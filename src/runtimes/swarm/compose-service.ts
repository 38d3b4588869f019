/** Converts a service of a checked compose document to a swarm service. */
import { composeProjectLabel, composeServiceLabel, type Labels } from "../../engine/attribution.ts";
import type { EngineOwnership } from "../../engine/ownership.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import {
  bytesOf,
  durationSecs,
  environmentPairs,
  isSet,
  joinedNetworks,
  listOf,
  unknownKeys,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
  wordsOf,
} from "../compose/compose-values.ts";
import { spannedPorts, readServicePort } from "../compose/service-ports.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { secretsDir, type TaskFile } from "./task-files.ts";
import { placementOf, plain, restartDelay, scaledLabel, updateConfigs } from "./stack-plan.ts";
import type { ServiceSpec } from "./swarm-api.ts";
import { mountsOf, type VolumePlan } from "./compose-mounts.ts";

export interface ComposeServiceOptions {
  readonly ownership: EngineOwnership;
  /** Name of the swarm service. */
  readonly name: string;
  /** Name of the compose project. */
  readonly project: string;
  /** The name or ID by which the nodes find the image. */
  readonly image: string;
  /** Reserved labels of the image, blanked. */
  readonly blanked: Labels;
  /** ID of this host's node. */
  readonly nodeId: string;
  /** Names of the document's networks on the swarm, by their keys. */
  readonly networks: ReadonlyMap<string, string>;
  /** The document's volumes, by their keys. */
  readonly volumes: ReadonlyMap<string, VolumePlan>;
  /** Contents of the document's secrets and configs, by their keys. */
  readonly contents: Readonly<Record<TaskFile["kind"], ReadonlyMap<string, TaskFile["content"]>>>;
  /** Secret values, by setting name, which must not be visible in the service's specification. */
  readonly hidden: ReadonlyMap<string, string>;
}

const nanosecondsPerSec = 1_000_000_000;

/** Keys of a compose service that a swarm supports, or that can be ignored. */
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
  readonly files: readonly TaskFile[];
}

/** @throws SvcError `not_possible` for settings that a swarm does not support, and for a secret that it would show */
export function composeService(
  app: RunnableApp,
  key: string,
  service: JsonObject,
  options: ComposeServiceOptions,
): ComposeService {
  requireKnown(app, key, service);
  const { ownership, name, nodeId, image, hidden } = options;
  const { ports: mode, replicas } = placementOf(app);
  const deploy = recordOf(service["deploy"]);
  const mounts = mountsOf(app, key, service, options.volumes);
  const isHere = mounts.some(({ isLocal }) => isLocal) || !image.includes("@");
  const ports = portsOf(app, key, service, mode);
  const named = Number(textOf(deploy["replicas"]) || textOf(service["scale"])) || undefined;
  const isScaled = named === undefined && !mounts.some(({ isLocal }) => isLocal);
  const env = environmentOf(service, hidden);
  const labels = { ...ownership.labels("container", app.id), [composeServiceLabel]: key };
  const hasMounts = mounts.some(({ isData }) => isData);
  const spec = plain({
    Name: name,
    Labels: { ...labels, ...ownership.labels("service", app.id), ...(isScaled && { [scaledLabel]: "true" }) },
    TaskTemplate: {
      ContainerSpec: {
        ...containerSpec(app, service, image),
        Labels: {
          ...options.blanked,
          ...pairsOf(service["labels"]),
          ...labels,
          [composeProjectLabel]: options.project,
        },
        Env: env.plain,
        Mounts: mounts.map(({ mount }) => mount),
      },
      Resources: resourcesOf(app, service, deploy),
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

function requireKnown(app: RunnableApp, key: string, service: JsonObject): void {
  const security = textsOf(service["security_opt"]).filter((text) => !/^no-new-privileges\b/.test(text));
  const mode = textOf(recordOf(service["deploy"])["mode"]);
  const cannot = [
    ...unknownKeys(service, known).map((name) => `sets "${name}"`),
    ...security.map((text) => `sets the security option "${text}"`),
    ...(["", "replicated"].includes(mode) ? [] : [`has the mode "${mode}"`]),
  ];
  if (cannot.length === 0) return;
  const message = `service "${key}" of app "${app.id}" ${cannot.join(", ")}, which svc does not support for services on a swarm`;
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
    // Ignored by engines with an API before 1.44.
    Privileges: { NoNewPrivileges: true },
    // No capabilities that a user's program could gain, whatever its image and its service set.
    ...(app.ownerUid === 0
      ? {
          CapabilityAdd: isSet(service["cap_add"]) ? textsOf(service["cap_add"]).map(capability) : undefined,
          CapabilityDrop: textsOf(service["cap_drop"]).map(capability),
        }
      : { CapabilityDrop: ["ALL"] }),
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

/** Converts to the order of `/etc/hosts`, which is reversed. */
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

function resourcesOf({ ownerUid }: RunnableApp, service: JsonObject, deploy: JsonObject): object {
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
    // A swarm places no other task on reserved resources, even unused ones, so a user could reserve whole nodes.
    Reservations:
      ownerUid === 0
        ? {
            NanoCPUs: count(reservations["cpus"], 1e9),
            MemoryBytes: bytes(reservations["memory"] ?? service["mem_reservation"]),
          }
        : undefined,
  };
}

/** @param word value of `restart`: `no`, `always`, `unless-stopped`, `on-failure` or `on-failure:N` */
function restartOf(app: RunnableApp, word: string): object {
  const [policy = "", attempts = "0"] = word.split(":");
  const Condition = { no: "none", "on-failure": "on-failure" }[policy] ?? "any";
  return {
    ...{ Condition, MaxAttempts: Number(attempts) },
    Delay: restartDelay(app),
    Window: app.manifest.restart.resetAfterMs * 1_000_000,
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
      const message = `service "${key}" of app "${app.id}" publishes ${port.published} as ${port.target}: on a swarm, publish each port singly`;
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

/** A variable with a secret value becomes `NAME_FILE`, the path of a file, which images of databases support. */
function environmentOf(
  service: JsonObject,
  hidden: ReadonlyMap<string, string>,
): { plain: string[]; files: TaskFile[] } {
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
): TaskFile[] {
  return (["secrets", "configs"] as const).flatMap((kind) =>
    listOf(service[kind]).map((value): TaskFile => {
      const { source = value, target = null } = recordOf(value);
      const name = textOf(source);
      const content = contents[kind].get(name);
      if (content === undefined) {
        const message = `service "${key}" of app "${app.id}" uses "${name}" of the ${kind}, which has no file in the package; svc supports only secrets and configs from files`;
        throw new SvcError("not_possible", message);
      }
      const given = textOf(target) || name;
      const path = given.startsWith("/")
        ? given
        : kind === "secrets"
          ? `${secretsDir}/${given}`
          : `/${given}`;
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
  const message = `service "${key}" of app "${app.id}" would show the secret "${shown[0]}" in its specification on the swarm; pass the secret as the whole value of a variable, or in a file`;
  throw new SvcError("not_possible", message);
}
