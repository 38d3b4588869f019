/** From what `compose config` prints to the document that is checked and run. */
import { posix } from "node:path";
import { isInside } from "../../lib/is-inside.ts";
import type { JsonObject, JsonValue } from "../../lib/json.ts";
import { mapValues } from "../../lib/map-values.ts";
import type { RestartPolicy } from "../../packages/manifest.ts";
import { restartLabel } from "../container-restarts.ts";
import { invalid, type YamlReader } from "./compose-sources.ts";
import {
  isSet,
  joinedNetworks,
  listOf,
  mapTexts,
  pairsOf,
  recordOf,
  textOf,
  textsOf,
} from "./compose-values.ts";

const bounds = { maxBytes: 2 * 1024 * 1024, maxTokens: 100_000, maxDepth: 64, maxValues: 100_000 };

/** What was printed, with `$$` read as the `$` that it stands for. @throws SvcError `package_invalid` */
export async function readResolved(text: string, file: string, readYaml: YamlReader): Promise<JsonObject> {
  const result = await readYaml(text, bounds);
  if ("problems" in result) throw invalid(file, result.problems.map(({ message }) => message).join("; "));
  return recordOf(mapTexts(result.value, (part) => part.replaceAll("$$", "$")));
}

/**
 * As text that compose reads back as the same, whatever its environment. It takes JSON for YAML 1.1, where a text goes on
 * behind U+0085 as behind any other line break, with one space in its place: what is checked here would be one path, and what
 * is mounted another.
 */
export function printDocument(document: JsonObject): string {
  return JSON.stringify(mapTexts(document, (part) => part.replaceAll("$", "$$$$"))).replaceAll(
    /[\u007f-\ud7ff\ue000-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** The document that was printed. */
export function readPrinted(text: string): JsonObject {
  return recordOf(mapTexts(JSON.parse(text) as JsonValue, (part) => part.replaceAll("$$", "$")));
}

/** An image to be built. */
export interface ServiceBuild {
  readonly service: string;
  /** Absolute. */
  readonly context: string;
  /** Relative to the context. */
  readonly dockerfile: string;
  readonly target?: string;
  readonly args: Readonly<Record<string, string>>;
}

export interface RunnableOptions {
  file: string;
  /** Compose of the first generation is to run it. */
  isClassic: boolean;
  profiles: readonly string[];
  restart: RestartPolicy;
  stopGraceMs: number;
  /** `uid:gid` that services run as which name no other; absent for root's own apps. */
  owner?: string | undefined;
  /** Processes of a service that says nothing of them; absent for root's own apps. */
  pidsLimit?: number | undefined;
  /** Files of the host that are mounted to read where they are there, and are not. */
  absent: ReadonlySet<string>;
  /** What the built image of a service is called. */
  builtTag: (service: string) => string;
  /** An image's reference with a tag. */
  withTag: (image: string) => string;
}

export interface RunnableProject {
  /** Without the labels, which {@link labelled} adds. */
  readonly document: JsonObject;
  readonly builds: readonly ServiceBuild[];
  /** References of the images that are pulled. */
  readonly pulls: readonly string[];
}

const logging = { driver: "json-file", options: { "max-size": "10m", "max-file": "5" } };

/**
 * The services of the chosen profiles, each with an image that is there by then, and with what the manifest says where the
 * file says nothing. Containers are named by compose, so that a clone does not collide with its original.
 */
export function runnableProject(document: JsonObject, options: RunnableOptions): RunnableProject {
  const builds: ServiceBuild[] = [];
  const pulls = new Set<string>();
  const services: Record<string, JsonObject> = {};
  const all = Object.entries(recordOf(document["services"]));
  for (const [name, value] of all) {
    const { build, profiles, image, container_name: containerName, deploy, ...service } = recordOf(value);
    const wanted = textsOf(profiles);
    if (wanted.length > 0 && !wanted.some((profile) => options.profiles.includes(profile))) continue;
    const isBuilt = isSet(build);
    if (!isBuilt && !isSet(image))
      throw invalid(options.file, `service "${name}" has neither image nor build`);
    const reference = isBuilt ? options.builtTag(name) : options.withTag(textOf(image));
    if (isBuilt) builds.push(readBuild(options.file, name, build ?? null));
    else pulls.add(reference);
    for (const key of ["pull_policy", "develop"]) Reflect.deleteProperty(service, key);
    const { restart_policy: deployedPolicy, ...deployed } = recordOf(deploy);
    const limited = pidsLimited(options, service, deployed);
    services[name] = {
      ...service,
      ...withAlias(service, textOf(containerName)),
      ...ownedBy(options.owner, service),
      ...(isSet(service["volumes"]) && {
        volumes: listOf(service["volumes"])
          .map((volume) => longBind(volume, options.isClassic))
          .filter((volume) => !isAbsent(volume, options.absent)),
      }),
      image: reference,
      restart: deployedWord(deployedPolicy) ?? service["restart"] ?? restartWord(options.restart),
      ...(isSet(deployed) && { deploy: deployed }),
      ...limited,
      stop_grace_period: service["stop_grace_period"] ?? `${Math.ceil(options.stopGraceMs / 1000)}s`,
      logging: service["logging"] ?? logging,
    };
  }
  if (Object.keys(services).length === 0) throw invalid(options.file, "it has no services to run");
  const { name: _, services: __, ...rest } = document;
  return { document: { ...rest, services }, builds, pulls: [...pulls] };
}

/**
 * A bind as an object: with the short form the engine makes a directory that is missing, as root, wherever a link leads.
 * What is to be mounted is there by then, or it is an error.
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
  // The first generation knows labels in the short form alone.
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

function isAbsent(volume: JsonValue, absent: ReadonlySet<string>): boolean {
  const { type, source, read_only: readOnly } = recordOf(volume);
  return type === "bind" && readOnly === true && absent.has(textOf(source));
}

/** A name of its own goes on working inside the project. */
function withAlias(service: JsonObject, alias: string): JsonObject {
  if (alias === "" || isSet(service["network_mode"])) return {};
  const networks = joinedNetworks(service).map(([network, { aliases, ...others }]) => [
    network,
    { ...others, aliases: [...listOf(aliases), alias] },
  ]);
  return { networks: Object.fromEntries(networks) as JsonObject };
}

/** What containers of users have beside: they gain no privileges, and run as their owner. */
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

/** Where the second generation of compose takes it: beside other limits of the deployment it takes no other. */
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

/** What a service says for clusters, which compose takes for one host too. */
function deployedWord(policy: JsonValue | undefined): string | undefined {
  if (!isSet(policy)) return undefined;
  const { condition, max_attempts: attempts } = recordOf(policy);
  if (condition === "none") return "no";
  return condition === "on-failure" ? `on-failure:${textOf(attempts) || "0"}` : "always";
}

function restartWord({ policy, maxAttempts }: RestartPolicy): string {
  return policy === "never" ? "no" : `${policy}:${maxAttempts}`;
}

function readBuild(file: string, service: string, value: JsonValue): ServiceBuild {
  const { context, dockerfile, target, args, ...rest } =
    typeof value === "string" ? { context: value } : recordOf(value);
  // Labels and caches change nothing of what the image does.
  const odd = Object.entries(rest).find(
    ([key, item]) => !["labels", "cache_from", "cache_to", "pull"].includes(key) && isSet(item),
  );
  if (odd !== undefined)
    throw invalid(
      file,
      `service "${service}": svc does not build with "${odd[0]}": leave it out, or name an image`,
    );
  const path = textOf(context);
  if (!path.startsWith("/"))
    throw invalid(file, `service "${service}": the build context must be a directory`);
  const dockerfilePath = posix.resolve(path, textOf(dockerfile) || "Dockerfile");
  if (!isInside(path, dockerfilePath)) {
    throw invalid(file, `service "${service}": the Dockerfile must be in the build context`);
  }
  return {
    service,
    context: path,
    dockerfile: posix.relative(path, dockerfilePath),
    args: pairsOf(args),
    ...(isSet(target) && { target: textOf(target) }),
  };
}

/**
 * With labels on all that compose makes of it, and no restarts by the engine: nothing starts without svc's check (decisions
 * 39), which starts again what ends as the label says.
 */
export function labelled(document: JsonObject, labels: Readonly<Record<string, string>>): JsonObject {
  const withLabels = (part: JsonValue, more: Readonly<Record<string, string>> = {}): JsonObject => {
    const own = recordOf(part);
    return { ...own, labels: { ...pairsOf(own["labels"]), ...labels, ...more } };
  };
  const service = (part: JsonValue): JsonObject => ({
    ...withLabels(part, { [restartLabel]: textOf(recordOf(part)["restart"]) }),
    restart: "no",
  });
  const own = (part: JsonValue): JsonValue => (isSet(recordOf(part)["external"]) ? part : withLabels(part));
  return {
    ...document,
    services: mapValues(recordOf(document["services"]), service),
    networks: { default: withLabels(null), ...mapValues(recordOf(document["networks"]), own) },
    volumes: mapValues(recordOf(document["volumes"]), own),
  };
}
