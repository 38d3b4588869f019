/** Exports an app as a compose file with accompanying files. */
import { basename, posix } from "node:path";
import { isInside } from "../lib/paths.ts";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { mapValues } from "../lib/map-values.ts";
import { resolveSettings } from "../packages/settings/settings.ts";
import { appTree, checkoutOf } from "../runtimes/app-tree.ts";
import { isSet, listOf, mapTexts, recordOf, textOf, textsOf } from "../runtimes/compose/compose-values.ts";
import { readServiceMount } from "../runtimes/compose/service-mounts.ts";
import type { ResolvedProject } from "../runtimes/capabilities.ts";
import { replaceMarks, variableOf, type MarkedApp } from "./project-secrets.ts";
import {
  applying,
  builtImage,
  dataNote,
  handedFiles,
  literal,
  mountedAs,
  ownNotes,
  plainName,
  publishedAs,
  secretPlaceholder,
  type ExportedApp,
  type Project,
} from "./workload.ts";
import { yamlText } from "./yaml-text.ts";

/** For a single-container app. */
export function toCompose({ workloads }: Project): ExportedApp {
  const [workload] = workloads;
  if (workload === undefined) throw new Error("there is no container to export");
  const { name, image, entrypoint, command, env, secretEnv, volumes, ports, health, limits, runtime } =
    workload;
  const files = handedFiles(workload);
  const mounts = [
    ...volumes.map((volume) => `${volume.name}:${volume.path}`),
    ...files.map((file) => `./${file.name}:${file.path}:ro`),
    ...runtime.mounts.map(mountedAs),
  ];
  const isExec = health?.probe.kind === "exec";
  const service = {
    image,
    ...(entrypoint !== undefined && { entrypoint: entrypoint.map(literal) }),
    ...(command.length > 0 && { command: command.map(literal) }),
    ...(runtime.workingDir !== undefined && { working_dir: runtime.workingDir }),
    ...(runtime.user !== undefined && { user: runtime.user }),
    environment: mapValues(env, (value, key) =>
      secretEnv.includes(key) && value === secretPlaceholder ? `\${${key}:?set ${key}}` : literal(value),
    ),
    ...(ports.length > 0 && runtime.network === "bridge" && { ports: ports.map(publishedAs) }),
    ...(runtime.network !== "bridge" && { network_mode: runtime.network }),
    ...(mounts.length > 0 && { volumes: mounts }),
    ...(health !== undefined &&
      isExec && {
        healthcheck: {
          test: ["CMD", ...workload.healthArgv.map(literal)],
          interval: `${health.intervalMs}ms`,
          timeout: `${health.timeoutMs}ms`,
          start_period: `${health.startPeriodMs}ms`,
          retries: health.retries,
        },
      }),
    ...(limits.memoryBytes !== undefined && { mem_limit: limits.memoryBytes }),
    ...(limits.cpus !== undefined && { cpus: limits.cpus }),
    ...(limits.openFiles !== undefined && { ulimits: { nofile: limits.openFiles } }),
    restart: workload.restart.policy === "never" ? "no" : workload.restart.policy,
    stop_signal: workload.stop.signal,
    stop_grace_period: `${workload.stop.graceMs}ms`,
    init: true,
    ...(runtime.privileged ? { privileged: true } : { security_opt: ["no-new-privileges:true"] }),
    ...(runtime.pid === "host" && { pid: "host" }),
    ...(runtime.ipc === "host" && { ipc: "host" }),
    ...(runtime.capabilities.length > 0 && { cap_add: runtime.capabilities }),
    ...(runtime.devices.length > 0 && { devices: runtime.devices }),
    ...(runtime.groups !== undefined && { group_add: runtime.groups.map(String) }),
  };
  const document = {
    services: { [name]: service },
    ...(volumes.length > 0 && { volumes: Object.fromEntries(volumes.map((volume) => [volume.name, {}])) }),
  };
  return {
    files: [
      { name: "compose.yaml", content: yamlText(document) },
      ...files.map((file) => ({ name: file.name, content: file.content })),
    ],
    notes: applying(
      health !== undefined &&
        !isExec &&
        `compose does not support ${health.probe.kind} health checks, so the app's health is not checked`,
      secretEnv.length > 0 && `set ${secretEnv.join(", ")} in the environment of docker compose, or in .env`,
      workload.replicas > 1 && `the app runs once there instead of ${workload.replicas} times`,
    ),
  };
}

/** For a compose project: the document that svc runs, without svc's labels. */
export function projectFile(
  { app, secrets }: MarkedApp,
  { project, document, built, files }: ResolvedProject,
): ExportedApp {
  const name = plainName(app.id);
  const notes: string[] = [];
  const dataOf = new Set<string>();
  const beside = new Map<string, { name: string; content: string }>();
  const settings = replaceMarks(app.settings, secrets);
  const written = resolveSettings(app.manifest, settings).files;
  const texts = new Map([
    ...files,
    ...written.map(({ path, content }) => [posix.join(app.directory, appTree.data, path), content] as const),
  ]);
  /** Path beside the compose file of an entry in the app's directory. */
  const place = (path: string): string => {
    if (!isInside(app.directory, path)) return path;
    const content = texts.get(path);
    if (content === undefined) return `./${posix.relative(app.directory, path)}`;
    const file = beside.get(path) ?? { name: `${name}-${beside.size}-${basename(path)}`, content };
    beside.set(path, file);
    return `./${file.name}`;
  };
  const service = (value: JsonValue, key: string): JsonObject => {
    const { user = null, ...rest } = recordOf(value);
    const isOwners = app.ownerUid !== 0 && textOf(user).startsWith(`${app.uid}:`);
    if (isOwners)
      notes.push(
        `service "${key}" runs as its owner here (uid ${app.uid}), but as the user of its image there`,
      );
    if (built.has(key))
      notes.push(
        `service "${key}": its image is built from the package; build it, push it, and set it in compose.yaml`,
      );
    const volumes = listOf(rest["volumes"]).map((volume) => placed(volume, place));
    for (const { type, source } of volumes.map(readPlaced)) {
      if (type === "volume" || /^\.\/(data|volumes)\//.test(source)) dataOf.add(key);
      if (type === "bind" && source.startsWith(`./${checkoutOf(app)}`))
        notes.push(
          `service "${key}" mounts ${source} of its package, which is not exported; copy it from ${app.directory}`,
        );
      else if (type === "bind" && source.startsWith("/"))
        notes.push(`service "${key}" mounts ${source} of the host`);
    }
    return {
      ...rest,
      // The number of attempts is svc's own, except for failures.
      restart: textOf(rest["restart"]).replace(/^always:.*/, "always"),
      ...(user !== null && !isOwners && { user }),
      ...(built.has(key) && { image: builtImage(app, key) }),
      ...(volumes.length > 0 && { volumes }),
    };
  };
  const partsWithFiles = (kind: "configs" | "secrets"): JsonObject =>
    mapValues(recordOf(document[kind]), (value, key): JsonObject => {
      const part = recordOf(value);
      if (!isSet(part["file"])) return part;
      const file = kind === "configs" ? place(textOf(part["file"])) : `./${name}-${plainName(key)}.secret`;
      if (kind === "secrets") notes.push(`the secret "${key}" is not exported; put it into ${file}`);
      return { ...part, file };
    });
  const parted = (kind: "networks" | "volumes"): JsonObject =>
    isSet(document[kind]) ? { [kind]: mapValues(recordOf(document[kind]), namedByItself(project)) } : {};
  const variables = secrets.map((secret) => variableOf(app, secret));
  const parts = {
    ...document,
    ...parted("networks"),
    ...parted("volumes"),
    services: mapValues(recordOf(document["services"]), service),
    ...(isSet(document["configs"]) && { configs: partsWithFiles("configs") }),
    ...(isSet(document["secrets"]) && { secrets: partsWithFiles("secrets") }),
  };
  const escaped = recordOf(mapTexts(parts, literal));
  const content = yamlText(
    replaceMarks(escaped, secrets, (secret) => {
      const variable = variableOf(app, secret);
      return `\${${variable}:?set ${variable}}`;
    }),
  );
  return {
    files: [
      { name: "compose.yaml", content },
      ...(variables.length > 0
        ? [{ name: ".env", content: variables.map((each) => `${each}=\n`).join("") }]
        : []),
      ...beside.values(),
    ],
    notes: applying(
      secrets.map(
        (secret) => `the secret "${secret}" is not exported; set ${variableOf(app, secret)} in .env`,
      ),
      ownNotes(app.manifest),
      dataOf.size > 0 && dataNote,
      notes,
      app.manifest.health !== undefined && "the health check in svc.yaml works only in svc",
      (app.placement?.replicas ?? 1) > 1 &&
        "the services run several times on the swarm, but as set in compose.yaml there",
    ),
  };
}

/** Removes names that belong to svc's project: on this host they would refer to the app's own parts. */
function namedByItself(project: string): (part: JsonValue, key: string) => JsonObject {
  return (part, key) => {
    const { name = null, ...rest } = recordOf(part);
    return textOf(name) === `${project}_${key}` ? rest : recordOf(part);
  };
}

/** Sources beside the file begin with `./`. */
function readPlaced(volume: JsonValue): { type: string; source: string } {
  const { type, source } = readServiceMount(volume);
  return { type: source.startsWith("./") ? "bind" : type, source };
}

/** Replaces the source of a bind. */
function placed(volume: JsonValue, place: (path: string) => string): JsonValue {
  const { type, source, target, readOnly } = readServiceMount(volume);
  if (type !== "bind") return volume;
  if (typeof volume === "string") return `${place(source)}${volume.slice(source.length)}`;
  const { propagation, selinux } = recordOf(recordOf(volume)["bind"]);
  const modes = [...(readOnly ? ["ro"] : []), ...textsOf(propagation), ...textsOf(selinux)];
  // In the short form, with which every compose version creates missing data directories.
  return [place(source), target, ...(modes.length > 0 ? [modes.join(",")] : [])].join(":");
}
