/** Determines what the values of a service's keys request from the host. Mounts are in service-mount-claims.ts. */
import type { JsonValue } from "../../lib/json.ts";
import { usersContainers } from "../containers/container-policy.ts";
import {
  listRequirements,
  logDriverRequirements,
  namespaceRequirements,
  type HostRequirement,
} from "../containers/host-requirements.ts";
import { excessOfHealth, excessOfLog } from "../containers/user-bounds.ts";
import { unknownKeyRequirements, type Draft, type Reader } from "./claims-draft.ts";
import {
  bytesOf,
  durationSecs,
  isSet,
  listOf,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
  unknownKeys,
} from "./compose-values.ts";

/** Limits of users' containers. */
export const serviceBounds = {
  containers: usersContainers,
  processes: 32_768,
  sharedMemoryBytes: 2 * 2 ** 30,
  /** The default of a service: a higher value would take CPU time from others, and from the daemon. */
  cpuShares: 1_024,
  /** As `stop.grace` of a manifest: the longest stop. */
  graceSecs: 3_600,
};

export function atMost(what: string, most: number): Reader {
  return (value, { excess }) => excess.push(...tooMuch(what, value, most));
}

/** A negative value means unlimited; so does one that cannot be parsed. */
function tooMuch(what: string, value: JsonValue, most: number): string[] {
  const text = textOf(value);
  return bytesOf(value) <= most ? [] : [`requests ${text} ${what}, more than ${most}`];
}

export function readProcesses(value: JsonValue, { excess }: Draft): void {
  // As a text, 0 counts as set, and means unlimited.
  if (bytesOf(value) === 0) excess.push(`sets its process limit to ${textOf(value)}, which means unlimited`);
  excess.push(...tooMuch("processes", value, serviceBounds.processes));
}

const swarmKeys = ["mode", "labels", "update_config", "rollback_config", "placement", "endpoint_mode"];

export function readDeploy(value: JsonValue, draft: Draft): void {
  const { requirements, excess } = draft;
  const { replicas = null, resources = null } = recordOf(value);
  requirements.push(
    ...unknownKeyRequirements(recordOf(value), ["replicas", "resources", "restart_policy", ...swarmKeys]),
  );
  if (isSet(replicas)) excess.push(...tooMuch("containers", replicas, serviceBounds.containers));
  requirements.push(...unknownKeyRequirements(recordOf(resources), ["limits", "reservations"]));
  for (const [part, amounts] of Object.entries(recordOf(resources))) {
    for (const [resource, amount] of Object.entries(recordOf(amounts))) {
      if (resource === "pids" && isSet(amount)) readProcesses(amount, draft);
      if (["cpus", "memory", "pids"].includes(resource) || !isSet(amount)) continue;
      const permission = resource === "devices" && areGpus(amount) ? "gpu" : "devices";
      requirements.push({ permission, what: `has ${part} of ${resource}` });
    }
  }
}

/** The host path of `/dev/x:/dev/y:rw` or of its long form. */
export function deviceSource(device: JsonValue): string {
  return typeof device === "string" ? (device.split(":")[0] ?? "") : textOf(recordOf(device)["source"]);
}

function areGpus(devices: JsonValue): boolean {
  return listOf(devices).every((device) => textsOf(recordOf(device)["capabilities"]).includes("gpu"));
}

const healthKeys = ["test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"];

export function readHealth(value: JsonValue, { requirements, excess }: Draft): void {
  const health = recordOf(value);
  requirements.push(...unknownKeyRequirements(health, healthKeys));
  const { test = null, retries } = health;
  // A text is a shell command.
  const [kind] = Array.isArray(test) ? textsOf(test) : [];
  if (kind !== undefined && !["CMD", "CMD-SHELL", "NONE"].includes(kind)) {
    requirements.push({ permission: "privileged", what: `has a health check of the kind "${kind}"` });
  }
  const secs = (key: string): number | undefined =>
    health[key] === undefined || health[key] === null ? undefined : durationSecs(textOf(health[key]));
  excess.push(
    ...excessOfHealth({
      ...{ interval: secs("interval"), startInterval: secs("start_interval") },
      ...{ timeout: secs("timeout"), startPeriod: secs("start_period") },
      retries: retries === undefined || retries === null ? undefined : Number(textOf(retries)),
      command: test,
    }),
  );
}

/** A negative score would have the kernel end processes of others first. */
export function oomScoreRequirements(score: string): HostRequirement[] {
  if (/^\d+$/.test(score)) return [];
  return [{ permission: "privileged", what: `sets "oom_score_adj" to ${score}, less than 0` }];
}

/** Keys of a command that runs after the start, with their effect on its exec. */
const hookKeys: Readonly<Record<string, string>> = {
  command: "runs inside",
  environment: "is the environment of the command; svc removes names without a value for users",
  privileged: "gives the command all capabilities; judged",
  user: "runs the command as this user; judged",
  working_dir: "is the directory of the command",
};

export function readHooks(value: JsonValue, { requirements, excess, service }: Draft): void {
  for (const hook of listOf(value).map(recordOf)) {
    const { user = null, privileged = null } = hook;
    requirements.push(...unknownKeyRequirements(hook, Object.keys(hookKeys)));
    if (isSet(privileged) && textOf(privileged) !== "false")
      requirements.push({ permission: "privileged", what: "runs a privileged command after its start" });
    if (isSet(user) && textOf(user) !== textOf(service["user"]))
      excess.push(`runs a command after its start as "${textOf(user)}"`);
  }
}

export function readLogging(value: JsonValue, { requirements, excess }: Draft): void {
  const { driver = null, options = null } = recordOf(value);
  requirements.push(
    ...unknownKeyRequirements(recordOf(value), ["driver", "options"]),
    ...logDriverRequirements(textOf(driver)),
  );
  if (logDriverRequirements(textOf(driver)).length === 0) excess.push(...excessOfLog(pairsOf(options)));
}

/** Settings of a service's network, with their effect on the engine. */
const networkKeys: Readonly<Record<string, string>> = {
  aliases: "adds names to the network's own name server",
  gw_priority: "chooses the network of the default route",
  ipv4_address: "asks for an address of the network's subnet",
  ipv6_address: "asks for an address of the network's subnet",
  mac_address: "sets the address of the container's interface in the network",
  priority: "orders the networks",
};

export function readNetworks(value: JsonValue, { requirements }: Draft): void {
  const settings = Array.isArray(value) ? [] : Object.values(recordOf(value)).map(recordOf);
  for (const key of settings.flatMap((network) => unknownKeys(network, Object.keys(networkKeys)))) {
    requirements.push({ permission: "host_network", what: `sets "${key}" of a network` });
  }
}

export function list(permission: HostRequirement["permission"], verb: string): Reader {
  return (value, { requirements }) =>
    requirements.push(...listRequirements(textsOf(value), permission, verb));
}

/** Before the name of a service whose namespace another one uses. */
const ofService = "service:";

export function namespace(kind: Parameters<typeof namespaceRequirements>[0], own: readonly string[]): Reader {
  const ownModes = new Set(own);
  return (value, { requirements, services }) => {
    const mode = textOf(value);
    const isShared = mode.startsWith(ofService) && Object.hasOwn(services, mode.slice(ofService.length));
    if (!isShared) requirements.push(...namespaceRequirements(kind, mode, ownModes));
  };
}
