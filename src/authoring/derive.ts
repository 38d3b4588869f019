/** Generates a manifest from a directory, by the first file that describes how to run it. */
import { basename, join } from "node:path";
import { Document, isScalar, visit } from "yaml";
import { SvcError } from "../errors.ts";
import { shellWord } from "../lib/shell-word.ts";
import { isArchiveFile } from "../lib/archive-file.ts";
import type { ManifestDocument } from "../../gen/manifest-document.ts";
import { composeFileNames } from "../runtimes/compose/project-files.ts";
import { listedFiles } from "./compose-model.ts";
import type { ComposeProgram } from "./compose-program.ts";
import { unique, type Derived } from "./derived.ts";
import { fromCasaOs } from "./from-casaos.ts";
import { fromCompose } from "./from-compose.ts";
import { fromDockerfile } from "./from-dockerfile.ts";
import { fromGo, fromNode, fromPackageJson, fromPages, fromProcfile, fromPython } from "./from-program.ts";
import { templateNames } from "./templates.ts";
import { fromRuntipi } from "./from-runtipi.ts";
import type { PackageFiles } from "./package-files.ts";

type Importer = (
  files: PackageFiles,
  name: string,
  compose: ComposeProgram | undefined,
) => Promise<Derived | undefined>;

/** In order of preference: files for running it before files for building it. */
const importers: readonly (readonly [name: RegExp, importer: Importer, candidates: readonly string[]])[] = [
  [/^config\.json$/, fromRuntipi, ["config.json"]],
  [/\.ya?ml$/, fromCasaOs, composeFileNames],
  [/\.ya?ml$/, fromCompose, composeFileNames],
  [/dockerfile/i, fromDockerfile, ["Dockerfile"]],
  [/^Procfile$/, fromProcfile, ["Procfile"]],
  [/^package\.json$/, fromPackageJson, ["package.json"]],
  [/\.m?js$/, fromNode, ["server.js", "server.mjs"]],
  [/\.py$/, fromPython, ["app.py", "main.py", "server.py"]],
  [/^go\.mod$/, fromGo, ["go.mod"]],
  [/\.html$/, fromPages, ["index.html", "public/index.html"]],
  // Pages have scripts with such names, too.
  [/\.m?js$/, fromNode, ["app.js", "app.mjs", "index.js", "index.mjs", "main.js", "main.mjs"]],
];

export interface Plan extends Omit<Derived, "manifest"> {
  readonly manifest: ManifestDocument;
  /** Text of the new manifest. */
  readonly text: string;
}

export interface PlanOptions {
  /** File to use. Default: the first known file. */
  readonly from?: string | undefined;
  readonly id?: string | undefined;
  readonly name?: string | undefined;
  /** Memory limit for a generated program, such as `256MiB`; the needs of existing programs are unknown. */
  readonly memory?: string | undefined;
  /** The compose of this host, if a compose file is read. */
  readonly findCompose?: () => Promise<ComposeProgram | undefined>;
}

/**
 * Plans `svc.yaml` without writing it.
 * @throws SvcError `package_invalid` if a file cannot be read, `not_possible` without a known file
 */
export async function planManifest(files: PackageFiles, options: PlanOptions = {}): Promise<Plan> {
  const { manifest, ...derived } = await derive(files, options);
  const { id, name, version, ...rest } = manifest;
  const ownId = options.id ?? idOf(id ?? basename(files.root));
  const whole: ManifestDocument = {
    id: ownId,
    name: options.name ?? name ?? `${ownId.charAt(0).toUpperCase()}${ownId.slice(1)}`,
    version: version ?? "1.0.0",
    ...rest,
    ...(options.memory !== undefined && rest.process !== undefined && { limits: { memory: options.memory } }),
  };
  return { ...derived, manifest: whole, text: textOf(whole, derived.from) };
}

async function derive(files: PackageFiles, { from, findCompose }: PlanOptions): Promise<Derived> {
  let compose: Promise<ComposeProgram | undefined> | undefined;
  for (const [form, importer, candidates] of importers) {
    if (from !== undefined && !form.test(from)) continue;
    const isCompose = candidates === composeFileNames;
    const listed =
      isCompose && from === undefined ? await listedFirst(files, () => (compose ??= findCompose?.())) : [];
    for (const name of from === undefined ? [...listed, ...candidates] : [from]) {
      if ((await files.type(name)) !== "file") continue;
      if (isCompose || name === "config.json") compose ??= findCompose?.();
      const derived = await importer(files, name, await compose);
      if (derived !== undefined) return derived;
    }
  }
  const known = unique(importers.flatMap(([, , candidates]) => candidates)).join(", ");
  const unusual = (await files.names()).toSorted().find((name) => /compose.*\.ya?ml$/.test(name));
  const remedy =
    unusual === undefined
      ? `to start a new package: svc package init ${shellWord(files.root)} --template NAME, where NAME is one of ${templateNames.join(", ")}`
      : `to use ${unusual}: svc install ${shellWord(join(files.root, unusual))}`;
  if (from !== undefined && isArchiveFile(from))
    throw new SvcError("not_possible", `${from} is an archive; unpack it, and run: svc install ./DIR`);
  throw new SvcError(
    "not_possible",
    from === undefined
      ? `${files.root} contains no file that svc can create a package from (${known}); ${remedy}`
      : `${from} does not exist, or svc cannot create a package from it; supported: ${known}`,
  );
}

/** The first file in `COMPOSE_FILE` of `.env`, which compose prefers to the usual names. */
async function listedFirst(
  files: PackageFiles,
  findCompose: () => Promise<ComposeProgram | undefined> | undefined,
): Promise<string[]> {
  if (!/COMPOSE_FILE/.test((await files.text(".env")) ?? "")) return [];
  const compose = await findCompose();
  return compose === undefined ? [] : (await listedFiles(files, compose)).slice(0, 1);
}

/** Converts `My App` to `my-app`. */
function idOf(name: string): string {
  const id = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, "-")
    .replaceAll(/^[^a-z0-9]+|[^a-z0-9]+$/g, "")
    .slice(0, 63);
  return id.replace(/[^a-z0-9]+$/, "") || "app";
}

function textOf(manifest: ManifestDocument, from: string): string {
  const document = new Document(manifest);
  // Write commands on one line.
  visit(document, {
    Seq: (_key, list) => {
      if (list.items.every(isScalar)) list.flow = true;
    },
  });
  const head = `# Created from ${from}. All keys: svc package schema\n`;
  return head + document.toString({ lineWidth: 0, flowCollectionPadding: false });
}
