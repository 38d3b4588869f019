/** A package's compose file as compose reads it, with its `.env` and the files that it merges. */
import { basename, dirname, join, posix } from "node:path";
import type { SvcError } from "../errors.ts";
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { mapValues } from "../lib/map-values.ts";
import { readYaml, type Problem, type YamlDocument } from "../packages/manifest/yaml-document.ts";
import { withBindVolumes } from "../runtimes/compose/bind-volumes.ts";
import { requireClassicSubstitution } from "../runtimes/compose/classic-substitution.ts";
import { configFailure } from "../runtimes/compose/compose-failure.ts";
import { isChosen, readResolved } from "../runtimes/compose/compose-document.ts";
import { checkComposeSources, invalid, type YamlReader } from "../runtimes/compose/compose-sources.ts";
import { listOf, mapTexts, mergedRecord, recordOf } from "../runtimes/compose/compose-values.ts";
import { dotenvValues, resolvedTexts } from "../runtimes/compose/dotenv-values.ts";
import { chooseProject, choiceVariables, composeFilesIn } from "../runtimes/compose/project-files.ts";
import { composeRequirements, type ComposeRequirement } from "./compose-requirements.ts";
import { readComposeFile, variablesOf, withDefaults, type ComposeVariable } from "./compose-file.ts";
import type { ComposeProgram } from "./compose-program.ts";
import { publishedVariables } from "./compose-ports.ts";
import { PlannedFiles, unreadExample, type PackageFiles } from "./package-files.ts";

export interface ComposeModel {
  /** The file as written. */
  readonly document: JsonObject;
  /** All files that are merged or included, as written, starting with {@link document}. */
  readonly documents: readonly JsonObject[];
  /** Paths of the merged files, relative to the package. */
  readonly files: readonly string[];
  /** The services that run, with all values. */
  readonly resolved: JsonObject;
  readonly variables: readonly ComposeVariable[];
  /** The values in `.env`. */
  readonly dotenv: ReadonlyMap<string, string>;
  /** The values with which {@link resolved} was resolved. */
  readonly values: ReadonlyMap<string, string>;
  readonly requirements: readonly ComposeRequirement[];
  readonly lineOf: YamlDocument["lineOf"];
}

export interface ModelOptions {
  /** Absent if compose is not installed: then `.env` and other files are not read. */
  readonly compose: ComposeProgram | undefined;
  /** The variables that the manifest sets. */
  readonly env?: Readonly<Record<string, string>>;
  readonly profiles?: readonly string[];
}

const timeoutMs = 60_000;
const maxConfigBytes = 4 * 1024 * 1024;
/** Port for a variable without a value, so that it can be found in the output; the next ones count up from it. */
const firstStandInPort = 40_001;

const yaml: YamlReader = (text, bounds) => {
  const result = readYaml(text, bounds);
  return Promise.resolve("problems" in result ? result : { value: result.document.value });
};

/** @throws SvcError `package_invalid` for what compose rejects, and for files outside the package */
export async function readComposeModel(
  files: PackageFiles,
  name: string,
  { compose, env = {}, profiles = [] }: ModelOptions,
): Promise<{ model: ComposeModel } | { problems: readonly Problem[] }> {
  const text = (await files.text(name)) ?? "";
  const reading = readComposeFile(text);
  if ("problems" in reading) return reading;
  const { document, lineOf } = reading.file;
  const project: Project = { files, name, text, document, section: { file: name, profiles }, env };
  const parts = compose === undefined ? withoutCompose(project) : await withCompose(project, compose);
  const resolved = withBindVolumes(parts.resolved, files.root);
  const requirements = composeRequirements(resolved, files.root, lineOf);
  return { model: { document, lineOf, requirements, ...parts, resolved } };
}

/** The paths in `COMPOSE_FILE` of the package's `.env`. */
export async function listedFiles(files: PackageFiles, compose: ComposeProgram): Promise<string[]> {
  return composeFilesIn(await dotenvValues({ ...compose, readYaml: yaml }, files.root, choiceVariables));
}

interface Project {
  readonly files: PackageFiles;
  readonly name: string;
  readonly text: string;
  readonly document: JsonObject;
  readonly section: { readonly file: string; readonly profiles: readonly string[] };
  readonly env: Readonly<Record<string, string>>;
}

type Parts = Pick<ComposeModel, "documents" | "files" | "resolved" | "variables" | "dotenv" | "values">;

function withoutCompose({ files, name, document, section, env }: Project): Parts {
  const values = new Map(Object.entries(env));
  const { include: _, ...whole } = document;
  const services = mapValues(recordOf(document["services"]), (service): JsonValue => {
    const { volumes = null, extends: __, env_file: ___, label_file: ____, ...rest } = mergedRecord(service);
    return { ...rest, volumes: listOf(volumes).map((volume) => absolute(volume, files.root, values)) };
  });
  const inPlace = (["secrets", "configs"] as const).map((kind) => [
    kind,
    mapValues(recordOf(document[kind]), (part): JsonValue => {
      const { file, ...rest } = recordOf(part);
      return typeof file === "string"
        ? { ...rest, file: join(files.root, withDefaults(file, values)) }
        : part;
    }),
  ]);
  const resolved = recordOf(
    mapTexts({ ...whole, ...(Object.fromEntries(inPlace) as JsonObject), services }, (text) =>
      withDefaults(text, values),
    ),
  );
  return {
    ...{
      documents: [document],
      files: [name],
      variables: variablesOf([document]),
      dotenv: new Map(),
      values,
    },
    resolved: onlyChosen(resolved, section.profiles),
  };
}

async function withCompose(project: Project, compose: ComposeProgram): Promise<Parts> {
  const { files, name, document, section, env } = project;
  const isPlanned = files instanceof PlannedFiles;
  const [root, checkout] = [dirname(files.root), basename(files.root)];
  const directory = join(files.root, posix.dirname(name));
  const read = { ...compose, readYaml: yaml };
  const choice = isPlanned
    ? { files: [name] as const, profiles: section.profiles }
    : await chooseProject(files, { root, checkout, section }, (below, names) =>
        dotenvValues(read, join(root, below), names),
      );
  const sources = isPlanned
    ? { documents: [document], environments: [] }
    : await checkComposeSources(files, root, checkout, choice.files, yaml, (texts) =>
        resolvedTexts(read, directory, texts, { PWD: directory, ...env }),
      );
  const documents = sources.documents.map(mergedRecord);
  const isClassic = await compose.command.isClassic();
  if (isClassic) requireClassicSubstitution(documents, name);
  const variables = variablesOf(documents);
  const names = variables.map((each) => each.name);
  const valuesIn = async (
    below: string,
    envFiles: readonly string[],
  ): Promise<ReadonlyMap<string, string>> =>
    envFiles.length > 0 || (await files.has(posix.join(below, ".env")))
      ? dotenvValues(
          read,
          join(files.root, below),
          names,
          envFiles.map((path) => join(root, path)),
        )
      : new Map();
  const included: ReadonlyMap<string, string>[] = [];
  for (const { directory: from, files: envFiles } of isClassic ? [] : sources.environments)
    included.push(await valuesIn(posix.relative(checkout, from), envFiles));
  const own = await valuesIn(posix.dirname(name), []);
  const dotenv = new Map([...included, own].flatMap((values) => [...values]));
  const known = new Map([...dotenv, ...Object.entries(env)]);
  const missing = variables.filter((variable) => !known.has(variable.name));
  const args = [
    ...choice.files.flatMap((file) => ["--file", isPlanned ? "-" : join(files.root, file)]),
    ...["--project-directory", directory],
    ...choice.profiles.flatMap((profile) => ["--profile", profile]),
    "config",
  ];
  let failure: SvcError | undefined;
  for (const standIns of standInsFor(missing, publishedVariables(documents))) {
    const { exitCode, stdout, stderr } = await compose.command.run(compose.runner, args, {
      ...{ cwd: isPlanned ? "/" : directory, ...(isPlanned && { stdin: Buffer.from(project.text) }) },
      env: { PWD: directory, ...env, ...standIns, COMPOSE_PROJECT_NAME: "package" },
      ...{ timeoutMs, maxOutputBytes: maxConfigBytes },
    });
    if (exitCode === 0) {
      const resolved = onlyChosen(await readResolved(stdout, name, yaml), choice.profiles);
      const values = new Map([...known, ...Object.entries(standIns)]);
      return { documents, files: choice.files, resolved, variables, dotenv, values };
    }
    failure ??= invalid(name, `${configFailure(stderr)}${await exampleHint(files)}`);
  }
  throw failure ?? invalid(name, "compose rejects it");
}

/** How to get the values that are missing. */
async function exampleHint(files: PackageFiles): Promise<string> {
  const example = await unreadExample(files);
  return example === undefined ? "" : `; ${example} is not read, copy it to .env and edit the copy`;
}

/**
 * Sets of placeholder values for variables that the user sets at the install, so that compose can resolve the file. The first
 * set has only required variables; the others have all variables without a default.
 */
function standInsFor(
  missing: readonly ComposeVariable[],
  ports: ReadonlySet<string>,
): Readonly<Record<string, string>>[] {
  const bare = missing.filter(({ fallback }) => fallback === undefined);
  const numbered = bare.filter(({ name }) => ports.has(name));
  const numbers = Object.fromEntries(numbered.map(({ name }, at) => [name, String(firstStandInPort + at)]));
  const others = bare.filter(({ name }) => !ports.has(name));
  const fill = (variables: readonly ComposeVariable[], value: string): Readonly<Record<string, string>> => ({
    ...Object.fromEntries(variables.map(({ name }) => [name, value])),
    ...numbers,
  });
  const required = fill(
    others.filter(({ isRequired }) => isRequired),
    "./unset",
  );
  return others.length === 0 ? [required] : [required, fill(others, "./unset"), fill(others, "1")];
}

function onlyChosen(resolved: JsonObject, profiles: readonly string[]): JsonObject {
  const chosen = new Set(profiles);
  const services = Object.entries(recordOf(resolved["services"])).filter(([, service]) =>
    isChosen(recordOf(service), chosen),
  );
  return { ...resolved, services: Object.fromEntries(services) };
}

/** Makes relative sources absolute: a mount of the package's own directory does not count as host access. */
function absolute(volume: JsonValue, root: string, values: ReadonlyMap<string, string>): JsonValue {
  const resolve = (source: string): string =>
    /^\.{1,2}(\/|$)/.test(source) ? posix.join(root, source) : source;
  if (typeof volume === "string") {
    // A colon in `${NAME:-/x}` is not a separator.
    const [source = "", ...rest] = withDefaults(volume, values).split(":");
    return [resolve(source), ...rest].join(":");
  }
  const { source, ...rest } = recordOf(volume);
  return typeof source === "string" ? { ...rest, source: resolve(withDefaults(source, values)) } : volume;
}
