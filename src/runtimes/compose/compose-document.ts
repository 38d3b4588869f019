/** Converts the output of `compose config` to the document that svc checks and runs. */
import type { Labels } from "../../engine/attribution.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { RestartPolicy } from "../../packages/manifest/manifest.ts";
import { maxProcesses } from "../../sys/user-processes.ts";
import { restartLabel } from "../containers/container-restarts.ts";
import { defaultInMemoryBytes, defaultLogOptions, sizedInMemory } from "../containers/user-bounds.ts";
import { invalid, type YamlReader } from "./compose-sources.ts";
import { readPullPolicy, strongerPolicy, type ImagePull } from "./pull-policy.ts";
import {
  environmentPairs,
  isSet,
  joinedNetworks,
  listOf,
  mapTexts,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
} from "./compose-values.ts";
import { readBuild, type ServiceBuild } from "./service-build.ts";

const bounds = { maxBytes: 2 * 1024 * 1024, maxTokens: 100_000, maxDepth: 64, maxValues: 100_000 };

/**
 * Parses the output, and unescapes `$$`.
 * @param copies the directory of the copies that compose read
 * @throws SvcError `package_invalid`
 */
export async function readResolved(
  text: string,
  file: string,
  readYaml: YamlReader,
  copies?: string,
): Promise<JsonObject> {
  const result = await readYaml(text, bounds);
  if ("problems" in result) throw invalid(file, result.problems.map(({ message }) => message).join("; "));
  return recordOf(mapTexts(result.value, (part) => withoutCopies(unescaped(part), copies)));
}

/** A text with the paths of the files that were copied. No package can contain the directory's name, which is random. */
export function withoutCopies(text: string, copies: string | undefined): string {
  if (copies === undefined || !text.includes(copies)) return text;
  return text.replaceAll(`${copies}/`, "/").replaceAll(copies, "/");
}

/** If there are many dollar signs, replacing a pattern takes a tenth of the time of replacing a text. */
function unescaped(text: string): string {
  return text.replaceAll(/\$\$/g, "$");
}

/**
 * Prints a document so that compose reads back exactly the same, whatever its environment. Compose parses JSON as
 * YAML 1.1, where U+0085 in a text is a line break and becomes a space: the checked path and the mounted path would
 * differ.
 */
export function printDocument(document: JsonObject): string {
  return JSON.stringify(mapTexts(document, (part) => part.replaceAll(/\$/g, "$$$$"))).replaceAll(
    /[\u007f-\ud7ff\ue000-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Parses a printed document. */
export function readPrinted(text: string): JsonObject {
  return recordOf(mapTexts(JSON.parse(text) as JsonValue, unescaped));
}

export interface RunnableOptions {
  file: string;
  /** Whether compose v1 will run it. */
  isClassic: boolean;
  profiles: readonly string[];
  restart: RestartPolicy;
  stopGraceMs: number;
  /** Default user of services as `uid:gid`; absent for root's own apps. */
  owner?: string | undefined;
  /** Default process limit of a service; absent for root's own apps. */
  pidsLimit?: number | undefined;
  /** Limit of the processes of the owner, in all containers together; absent for root's own apps. */
  maxUserProcesses?: number | undefined;
  /** Optional read-only mounts that this host does not have. */
  absent: ReadonlySet<string>;
  /** Name of a service's built image. */
  builtTag: (service: string) => string;
  /** Adds the default tag to an image reference. */
  withTag: (image: string) => string;
}

export interface RunnableProject {
  /** Without svc's labels, which {@link labelled} adds. */
  readonly document: JsonObject;
  readonly builds: readonly ServiceBuild[];
  /** Built images by the names that the file gives them. */
  readonly ownImages: ReadonlyMap<string, string>;
  readonly pulls: readonly ImagePull[];
}

/**
 * The services of the chosen profiles, each with an existing image, and with the manifest's values where the file
 * sets none. Compose names the containers, so that a clone does not collide with its original.
 */
export function runnableProject(document: JsonObject, options: RunnableOptions): RunnableProject {
  const builds: ServiceBuild[] = [];
  const pulls = new Map<string, ImagePull>();
  const services: Record<string, JsonObject> = {};
  const profiles = new Set(options.profiles);
  const all = Object.entries(recordOf(document["services"])).filter(([, value]) =>
    isChosen(recordOf(value), profiles),
  );
  const names = new Set(all.map(([name]) => name));
  const ownImages = builtImages(all, options);
  for (const [name, value] of all) {
    const { build, profiles: _, image, container_name: containerName, deploy, ...service } = recordOf(value);
    const isBuilt = isSet(build);
    if (!isBuilt && !isSet(image))
      throw invalid(options.file, `service "${name}" has neither image nor build`);
    const written = isBuilt ? "" : options.withTag(textOf(image));
    const reference = isBuilt ? options.builtTag(name) : (ownImages.get(written) ?? written);
    const policy = textOf(service["pull_policy"]);
    if (isBuilt) {
      const read = readBuild(name, build ?? null, { ...options, secrets: recordOf(document["secrets"]) });
      builds.push({ ...read, isRepeated: policy === "build" });
    } else if (!ownImages.has(written))
      pulls.set(reference, {
        ...(pulls.get(reference) ?? { service: name, reference }),
        policy: strongerPolicy(pulls.get(reference)?.policy, readPullPolicy(policy)),
      });
    for (const key of ["pull_policy", "develop"]) Reflect.deleteProperty(service, key);
    const { restart_policy: deployedPolicy, ...deployed } = recordOf(deploy);
    const limited = pidsLimited(options, service, deployed);
    services[name] = {
      ...service,
      ...withoutAbsent(service, names),
      ...withAlias(service, textOf(containerName)),
      ...ownedBy(options.owner, service),
      // For a name without a value, compose would use the value in its own environment, which is root's.
      ...(options.owner !== undefined &&
        isSet(service["environment"]) && { environment: environmentPairs(service["environment"]) }),
      ...(options.owner !== undefined &&
        isSet(service["post_start"]) && {
          post_start: listOf(service["post_start"])
            .map(recordOf)
            .map((hook) => ({ ...hook, environment: environmentPairs(hook["environment"]) })),
        }),
      ...(isSet(service["volumes"]) && {
        volumes: listOf(service["volumes"])
          .map((volume) => longBind(volume, options.isClassic))
          .filter((volume) => !isAbsent(volume, options.absent))
          .map((volume) => (options.owner === undefined ? volume : sizedMount(volume))),
      }),
      image: reference,
      restart: deployedWord(deployedPolicy) ?? service["restart"] ?? restartWord(options.restart),
      ...(isSet(deployed) && { deploy: deployed }),
      ...limited,
      ...processesLimited(options, service["ulimits"]),
      stop_grace_period: service["stop_grace_period"] ?? `${Math.ceil(options.stopGraceMs / 1000)}s`,
      logging: bounded(options.owner, service["logging"]),
      ...(options.owner !== undefined && sized(service)),
    };
  }
  if (Object.keys(services).length === 0) throw invalid(options.file, "the file contains no services to run");
  const { name: _, services: __, ...rest } = document;
  return {
    ...{ document: { ...rest, services }, builds, ownImages },
    pulls: [...pulls.values()],
  };
}

/** Whether a service runs with these profiles. */
export function isChosen({ profiles }: JsonObject, chosen: ReadonlySet<string>): boolean {
  const own = textsOf(profiles);
  return own.length === 0 || chosen.has("*") || own.some((profile) => chosen.has(profile));
}

/** The built image of each name that a service with `build` gives its image; the first of several services counts. */
function builtImages(
  services: readonly (readonly [name: string, service: JsonValue])[],
  { builtTag, withTag }: RunnableOptions,
): ReadonlyMap<string, string> {
  const images = new Map<string, string>();
  for (const [name, service] of services) {
    const { build, image } = recordOf(service);
    if (!isSet(build) || !isSet(image)) continue;
    const reference = withTag(textOf(image));
    if (!images.has(reference)) images.set(reference, builtTag(name));
  }
  return images;
}

/** Without optional dependencies on services that do not run. */
function withoutAbsent({ depends_on: needed }: JsonObject, present: ReadonlySet<string>): JsonObject {
  if (Array.isArray(needed) || !isSet(needed)) return {};
  const retained = Object.entries(recordOf(needed)).filter(
    ([name, how]) => present.has(name) || recordOf(how)["required"] !== false,
  );
  return { depends_on: Object.fromEntries(retained) };
}

/**
 * Converts a bind to the long form: for the short form the engine creates a missing source as root, following
 * symlinks. With the long form a missing source is an error.
 */
function longBind(volume: JsonValue, isClassic: boolean): JsonValue {
  if (typeof volume !== "string") {
    const { bind, ...mount } = recordOf(volume);
    if (mount["type"] !== "bind") return volume;
    const { create_host_path: _, ...options } = recordOf(bind);
    return { ...mount, bind: { ...options, ...(!isClassic && { create_host_path: false }) } };
  }
  const [source = "", target = "", mode = ""] = volume.split(":");
  if (!source.startsWith("/") || target === "") return volume;
  const modes = mode.split(",");
  const selinux = modes.find((word) => word === "z" || word === "Z");
  // Compose v1 supports SELinux labels only in the short form.
  if (isClassic && selinux !== undefined) return volume;
  const propagation = modes.find((word) => /(shared|slave|private)$/.test(word));
  return {
    ...{ type: "bind", source, target, read_only: modes.includes("ro") },
    bind: {
      ...(propagation !== undefined && { propagation }),
      ...(selinux !== undefined && { selinux }),
      ...(!isClassic && { create_host_path: false }),
    },
  };
}

/**
 * Without a size, a log would grow without limit. Users' logs stay with the engine, whatever its default driver is.
 */
function bounded(owner: string | undefined, logging: JsonValue | undefined): JsonValue {
  const { driver = null, options = null, ...rest } = recordOf(logging);
  const kind = textOf(driver) || (owner === undefined && isSet(options) ? "" : "json-file");
  if (kind !== "json-file") return logging ?? null;
  const chosen = pairsOf(options);
  return {
    ...rest,
    driver: kind,
    options: isSet(chosen["max-size"]) ? chosen : { ...defaultLogOptions, ...chosen },
  };
}

/** Defaults for a user's service: without them, the engine would use half of the memory, or the image's values. */
function sized({ tmpfs = null, healthcheck = null }: JsonObject): JsonObject {
  const { test = null, interval = null, disable = null } = recordOf(healthcheck);
  const isOff = isSet(disable) || textsOf(test)[0] === "NONE";
  return {
    ...(isSet(tmpfs) && {
      tmpfs: textsOf(tmpfs).map((entry) => {
        const [target = "", ...words] = entry.split(":");
        return `${target}:${sizedInMemory(words.join(":"))}`;
      }),
    }),
    ...(isSet(test) &&
      !isOff &&
      interval === null && { healthcheck: { ...recordOf(healthcheck), interval: "30s" } }),
  };
}

function sizedMount(volume: JsonValue): JsonValue {
  const { type, tmpfs = null } = recordOf(volume);
  if (type !== "tmpfs" || isSet(recordOf(tmpfs)["size"])) return volume;
  return { ...recordOf(volume), tmpfs: { ...recordOf(tmpfs), size: defaultInMemoryBytes } };
}

function isAbsent(volume: JsonValue, absent: ReadonlySet<string>): boolean {
  const { type, source, read_only: readOnly } = recordOf(volume);
  return type === "bind" && readOnly === true && absent.has(textOf(source));
}

/** The service stays reachable under its container name within the project. */
function withAlias(service: JsonObject, alias: string): JsonObject {
  if (alias === "" || isSet(service["network_mode"])) return {};
  const networks = joinedNetworks(service).map(([network, { aliases, ...others }]) => [
    network,
    { ...others, aliases: [...listOf(aliases), alias] },
  ]);
  return { networks: Object.fromEntries(networks) as JsonObject };
}

/** Settings of users' containers: they gain no privileges, and run as their owner. */
function ownedBy(owner: string | undefined, service: JsonObject): JsonObject {
  if (owner === undefined) return {};
  const securityOpt = textsOf(service["security_opt"]).filter(
    (option) => option !== "no-new-privileges:true",
  );
  return {
    security_opt: [...securityOpt, "no-new-privileges:true"],
    ...(!isSet(service["user"]) && { user: owner }),
  };
}

/** Lowers the limit of a service; one that users may not set stays, and is rejected later. */
function processesLimited(
  { maxUserProcesses: max }: RunnableOptions,
  value: JsonValue | undefined,
): JsonObject {
  if (max === undefined) return {};
  const { nproc = max, ...ulimits } = recordOf(value);
  const { soft = null, hard = null } =
    typeof nproc === "object" ? recordOf(nproc) : { soft: nproc, hard: nproc };
  const lowered = (limit: JsonValue): JsonValue => {
    const number = Number(textOf(limit));
    return number > max && number <= maxProcesses ? max : limit;
  };
  return { ulimits: { ...ulimits, nproc: { soft: lowered(soft), hard: lowered(hard) } } };
}

/** Sets the limit where compose v2 expects it: in `deploy`, if that has other limits. */
function pidsLimited(
  { pidsLimit, isClassic }: RunnableOptions,
  service: JsonObject,
  deploy: JsonObject,
): JsonObject {
  const resources = recordOf(deploy["resources"]);
  const limits = recordOf(resources["limits"]);
  if (pidsLimit === undefined || isSet(service["pids_limit"]) || isSet(limits["pids"])) return {};
  if (isClassic || !isSet(limits)) return { pids_limit: pidsLimit };
  return { deploy: { ...deploy, resources: { ...resources, limits: { ...limits, pids: pidsLimit } } } };
}

/** The restart policy in `deploy`, which compose also applies on one host. */
function deployedWord(policy: JsonValue | undefined): string | undefined {
  if (!isSet(policy)) return undefined;
  const { condition, max_attempts: attempts } = recordOf(policy);
  if (condition === "none") return "no";
  return condition === "on-failure" ? `on-failure:${textOf(attempts) || "0"}` : "always";
}

function restartWord({ policy, maxAttempts }: RestartPolicy): string {
  return policy === "never" ? "no" : `${policy}:${maxAttempts}`;
}

/** For users: compose v2 would pull another platform's image, unchecked, and move the name for all users. */
export function withoutPulls(document: JsonObject): JsonObject {
  const services = mapValues(recordOf(document["services"]), (service): JsonObject => ({
    ...recordOf(service),
    pull_policy: "never",
  }));
  return { ...document, services };
}

/** svc's labels for the parts of a project. */
export interface ProjectLabels {
  readonly of: (kind: "container" | "network" | "volume") => Labels;
  /** The compose file's labels override these. */
  readonly ofService: (service: string) => Labels;
}

/**
 * Labels everything that compose creates, and disables restarts by the engine: no container starts without svc's
 * check, and svc restarts containers as their label specifies.
 */
export function labelled(document: JsonObject, labels: ProjectLabels): JsonObject {
  const withLabels = (part: JsonValue, own: Labels): JsonObject => {
    const known = recordOf(part);
    return { ...known, labels: { ...pairsOf(known["labels"]), ...own } };
  };
  const service = (part: JsonValue, name: string): JsonObject => {
    const known = recordOf(part);
    const weak = { ...known, labels: { ...labels.ofService(name), ...pairsOf(known["labels"]) } };
    const own = { ...labels.of("container"), [restartLabel]: textOf(known["restart"]) };
    return { ...withLabels(weak, own), restart: "no" };
  };
  const own =
    (kind: "network" | "volume") =>
    (part: JsonValue): JsonValue =>
      isSet(recordOf(part)["external"]) ? part : withLabels(part, labels.of(kind));
  return {
    ...document,
    services: mapValues(recordOf(document["services"]), service),
    networks: { default: own("network")(null), ...mapValues(recordOf(document["networks"]), own("network")) },
    volumes: mapValues(recordOf(document["volumes"]), own("volume")),
  };
}
