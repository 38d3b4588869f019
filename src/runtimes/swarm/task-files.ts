/**
 * Files for tasks on any node: configs for settings that the package reads from files, and secrets for everything
 * secret. The swarm encrypts secrets, and no response of the engine shows them.
 */
import { randomBytes } from "node:crypto";
import { posix } from "node:path";
import type { Labels } from "../../engine/attribution.ts";
import { SvcError } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { settingsOf, type DockerRuntime } from "../../packages/manifest/manifest.ts";
import { placeholdersIn } from "../../packages/manifest/placeholders.ts";
import { resolveSettings } from "../../packages/settings/settings.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { secretTexts } from "../secret-texts.ts";
import { dockerRuntime } from "../docker/app-images.ts";
import { mountPoints } from "../docker/container-scope.ts";
import type { TaskFileKind, SwarmApi } from "./swarm-api.ts";

/** A file of a task and its content. */
export interface TaskFile {
  readonly kind: TaskFileKind;
  /** Absolute path in the container. */
  readonly path: string;
  readonly content: string | Buffer;
}

/** The files for an app's tasks, and the environment variables that they replace. */
export interface TaskFiles {
  readonly files: readonly TaskFile[];
  /** Secret variables, which are not set in the container. */
  readonly withheld: ReadonlySet<string>;
  /** Variables with the files' paths instead: `NAME_FILE`, which images of databases support. */
  readonly env: Readonly<Record<string, string>>;
}

export const secretsDir = "/run/secrets";

/** @throws SvcError `not_possible` for a secret that would be visible in the service's specification */
export function taskFilesOf(app: RunnableApp): TaskFiles {
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
      ...files.map(({ path, content }): TaskFile => ({
        kind: secretPaths.has(path) ? "secrets" : "configs",
        path: posix.join(mountPoints.data, path),
        content,
      })),
      ...[...withheld].map((name): TaskFile => ({
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
  const message = `app "${id}" would show its secret "${shown}" in its specification on the swarm; in the package, pass the secret in a file, or as the whole value of a variable`;
  throw new SvcError("not_possible", message);
}

/** Creates the files on the swarm; resolves to their part of a container's specification. */
export async function createTaskFiles(
  api: SwarmApi,
  files: readonly TaskFile[],
  { labels, owner, mode }: { labels: Labels; owner: { uid: number; gid: number }; mode: number },
): Promise<{ Secrets: JsonObject[]; Configs: JsonObject[] }> {
  const references = { Secrets: [] as JsonObject[], Configs: [] as JsonObject[] };
  for (const { kind, path, content } of files) {
    // A random name each time: names must not reveal content, and old tasks keep their files.
    const name = `svc-${randomBytes(12).toString("hex")}`;
    const id = await api.hand(kind, name, content, labels);
    const File = { Name: path, UID: String(owner.uid), GID: String(owner.gid), Mode: mode };
    if (kind === "secrets") references.Secrets.push({ SecretID: id, SecretName: name, File });
    else references.Configs.push({ ConfigID: id, ConfigName: name, File });
  }
  return references;
}
