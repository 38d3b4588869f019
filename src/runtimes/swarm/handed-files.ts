/**
 * What a task gets as files, on whichever node it runs: settings that the package reads from files as configs, and
 * everything secret as secrets, which the swarm keeps encrypted and no answer of the engine shows.
 */
import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import type { Labels } from "../../docker/attribution.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { settingsOf, type DockerRuntime } from "../../packages/manifest.ts";
import { placeholdersIn } from "../../packages/placeholders.ts";
import { resolveSettings } from "../../packages/settings.ts";
import type { RunnableApp } from "../runtime.ts";
import { secretTexts } from "../secret-texts.ts";
import { dockerRuntime } from "../docker/app-images.ts";
import { mountPoints } from "../docker/container-scope.ts";
import type { HandedKind, SwarmApi } from "./swarm-api.ts";

/** A file of a task, and what it says. */
export interface HandedFile {
  readonly kind: HandedKind;
  /** Absolute, in the container. */
  readonly path: string;
  readonly content: string | Buffer;
}

/** What is handed to the tasks of an app, and the environment that it takes the place of. */
export interface Handed {
  readonly files: readonly HandedFile[];
  /** Variables that are secret: not among those of the container. */
  readonly withheld: ReadonlySet<string>;
  /** What says where to read them instead: `NAME_FILE`, as the images of databases do. */
  readonly env: Readonly<Record<string, string>>;
}

export const secretsDir = "/run/secrets";

/** @throws SvcError `not_possible` for a secret that the swarm would show to whoever inspects the service */
export function handedTo(app: RunnableApp): Handed {
  const { manifest } = app;
  const hidden = secretTexts(app);
  const secrets = settingsOf(manifest).filter(([name]) => hidden.has(name));
  requireHidden(app, dockerRuntime(app), [...hidden.keys()]);
  const { env, files } = resolveSettings(manifest, app.settings);
  const withheld = new Set(secrets.flatMap(([, setting]) => setting.env ?? []));
  const secretPaths = new Set(secrets.flatMap(([, { file }]) => file?.path ?? []));
  return {
    withheld,
    env: Object.fromEntries([...withheld].map((name) => [`${name}_FILE`, `${secretsDir}/${name}`])),
    files: [
      ...files.map(({ path, content }): HandedFile => ({
        kind: secretPaths.has(path) ? "secrets" : "configs",
        path: posix.join(mountPoints.data, path),
        content,
      })),
      ...[...withheld].map((name): HandedFile => ({
        kind: "secrets",
        path: `${secretsDir}/${name}`,
        content: env[name] ?? "",
      })),
    ],
  };
}

function requireHidden(
  { id, manifest }: RunnableApp,
  runtime: DockerRuntime,
  secrets: readonly string[],
): void {
  const texts = [
    ...(runtime.entrypoint ?? []),
    ...(runtime.command ?? []),
    ...Object.values(runtime.env),
    ...(manifest.health?.probe.kind === "exec" ? manifest.health.probe.argv : []),
  ];
  const named = new Set(texts.flatMap(placeholdersIn));
  const documents = new Map(settingsOf(manifest));
  const shown = secrets.find(
    (name) => named.has(`settings.${name}`) || documents.get(name)?.arg !== undefined,
  );
  if (shown === undefined) return;
  const message = `app "${id}" gets its secret "${shown}" in its command or as a part of a variable, where a swarm shows it to whoever inspects the service: have the package read it from a file, or from a variable of its own`;
  throw new SvcError("not_possible", message);
}

/** Has the swarm keep them; resolves with what a container's specification says of them. */
export async function handOver(
  api: SwarmApi,
  files: readonly HandedFile[],
  { labels, owner, mode }: { labels: Labels; owner: { uid: number; gid: number }; mode: number },
): Promise<{ Secrets: JsonObject[]; Configs: JsonObject[] }> {
  const given = { Secrets: [] as JsonObject[], Configs: [] as JsonObject[] };
  for (const { kind, path, content } of files) {
    // Another name each time: what it says cannot be told from it, and old tasks keep what they had.
    const name = `svc-${randomBytes(12).toString("hex")}`;
    const id = await api.hand(kind, name, content, labels);
    const File = { Name: path, UID: String(owner.uid), GID: String(owner.gid), Mode: mode };
    if (kind === "secrets") given.Secrets.push({ SecretID: id, SecretName: name, File });
    else given.Configs.push({ ConfigID: id, ConfigName: name, File });
  }
  return given;
}
