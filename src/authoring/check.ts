/** Finds everything that an install of a package would reject, without an install, an engine or a network. */
import { basename, dirname, join, posix } from "node:path";
import { notFound, SvcError } from "../errors.ts";
import { mapValues } from "../lib/map-values.ts";
import { createManifestParser } from "../packages/manifest/manifest-parser.ts";
import { createManifestReader, maxManifestBytes } from "../packages/manifest/manifest-reader.ts";
import { manifestFileName, type ComposeRuntime, type Manifest } from "../packages/manifest/manifest.ts";
import { isGranted } from "../packages/manifest/permissions.ts";
import { createSettingsValidator, type SettingsValidator } from "../packages/settings/settings-validator.ts";
import { resolvePorts, resolveSettings } from "../packages/settings/settings.ts";
import { expandPlaceholders } from "../packages/manifest/placeholders.ts";
import { readYaml } from "../packages/manifest/yaml-document.ts";
import { checkComposeSources } from "../runtimes/compose/compose-sources.ts";
import { requireFoundNames } from "../runtimes/docker/dockerfile-images.ts";
import { unitProblems } from "../runtimes/systemd/app-unit.ts";
import { readComposeFile } from "./compose-file.ts";
import { readComposeModel } from "./compose-model.ts";
import type { ComposeProgram } from "./compose-program.ts";
import { PackageFiles } from "./package-files.ts";

export { readManifestSchema } from "../packages/manifest/manifest-reader.ts";

export interface Remark {
  readonly file: string;
  /** Line number, from 1. */
  readonly line: number;
  readonly message: string;
}

export interface PackageReport {
  /** Absent if it cannot be read. */
  readonly manifest?: Manifest;
  /** An install, or a start, would fail with these. */
  readonly problems: readonly Remark[];
  /** Suggestions for a working package. */
  readonly advice: readonly Remark[];
}

/** Finds the compose of this host, which reads compose files; absent: they are read without `.env` and other files. */
export type FindCompose = () => Promise<ComposeProgram | undefined>;

/** @param settingsThread the entry point of the thread that validates settings */
export async function checkPackage(
  root: string,
  settingsThread: URL,
  findCompose?: FindCompose,
): Promise<PackageReport> {
  using settings = createSettingsValidator({ threadUrl: settingsThread });
  return await check(root, settings, findCompose);
}

async function check(
  root: string,
  settings: SettingsValidator,
  findCompose?: FindCompose,
): Promise<PackageReport> {
  const files = new PackageFiles(root);
  let text: string;
  try {
    text = (await files.readFile(root, manifestFileName, { maxBytes: maxManifestBytes })).toString();
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    const message = `${error.message}; create one with: svc package init`;
    return { problems: [{ file: manifestFileName, line: 1, message }], advice: [] };
  }
  // This process serves nobody else.
  const result = await createManifestParser(createManifestReader(), settings).read(text, 0);
  if ("problems" in result) {
    return {
      problems: result.problems.map((problem) => ({ file: manifestFileName, ...problem })),
      advice: [],
    };
  }
  const { manifest } = result;
  const lines = linesOf(text);
  const problems = await runtimeProblems(files, manifest, lines, findCompose);
  return { manifest, problems, advice: [...adviceFor(manifest, lines), ...(await licenseAdvice(files))] };
}

/** The line of a top-level key. */
type Lines = (key: string) => number;

function linesOf(text: string): Lines {
  return (key) => Math.max(1, text.split("\n").findIndex((line) => line.startsWith(`${key}:`)) + 1);
}

function runtimeProblems(
  files: PackageFiles,
  manifest: Manifest,
  lines: Lines,
  findCompose?: FindCompose,
): Promise<Remark[]> {
  const { runtime } = manifest;
  switch (runtime.kind) {
    case "process":
      return programProblems(files, { ...runtime, key: "process" }, lines);
    case "service":
      return runtime.unit === undefined
        ? programProblems(files, { ...runtime, argv: runtime.argv ?? [], key: "service" }, lines)
        : serviceUnitProblems(files, runtime.unit, manifest, lines);
    case "docker":
      return runtime.build === undefined
        ? Promise.resolve([])
        : dockerfileProblems(files, runtime.build, lines);
    case "compose":
      return composeProblems(files, { ...runtime, manifest, lines, findCompose });
  }
}

interface Program {
  readonly key: string;
  readonly argv: readonly string[];
  readonly build: readonly { argv: readonly string[]; workingDir: string }[];
  readonly workingDir: string;
}

/** Build output does not exist yet, so only the first build step is checked if there is one. */
async function programProblems(files: PackageFiles, program: Program, lines: Lines): Promise<Remark[]> {
  const { key, argv, build, workingDir } = program;
  const at = { file: manifestFileName, line: lines(key) };
  const problems: Remark[] = [];
  const first = build[0];
  const commands = first === undefined ? [{ argv, workingDir }] : [first];
  for (const { argv: words, workingDir: dir } of commands) {
    if (dir !== "." && (await files.type(dir)) !== "directory")
      problems.push({ ...at, message: `${key}: there is no directory "${dir}" in the package` });
    for (const word of words.filter((each, index) => namesFile(each, index))) {
      if (await files.has(posix.join(dir, word))) continue;
      problems.push({ ...at, message: `${key}: there is no file "${posix.join(dir, word)}" in the package` });
    }
  }
  return problems;
}

/** A program with a path, or the script that an interpreter gets as its first argument. */
function namesFile(word: string, index: number): boolean {
  if (word.startsWith("/") || word.includes("$") || word.startsWith("-")) return false;
  return index === 0
    ? word.includes("/")
    : index === 1 && /^[\w./-]+\.(?:[cm]?js|ts|py|sh|rb|pl|php)$/.test(word);
}

async function dockerfileProblems(
  files: PackageFiles,
  build: { context?: string; dockerfile?: string; args?: Record<string, string> },
  lines: Lines,
): Promise<Remark[]> {
  const { context = ".", dockerfile = "Dockerfile", args = {} } = build;
  const file = posix.join(context, dockerfile);
  const text = await files.text(file);
  if (text === undefined) return [missingFile("docker", file, lines)];
  return remarksOf(file, text, () => requireFoundNames(text, args));
}

interface ComposePackage extends ComposeRuntime {
  readonly manifest: Manifest;
  readonly lines: Lines;
  readonly findCompose: FindCompose | undefined;
}

async function requireSafeSources(files: PackageFiles, file: string): Promise<void> {
  await checkComposeSources(files, dirname(files.root), basename(files.root), [file], (source, bounds) => {
    const result = readYaml(source, bounds);
    return Promise.resolve("problems" in result ? result : { value: result.document.value });
  });
}

async function composeProblems(
  files: PackageFiles,
  { file, profiles, env, manifest, lines, findCompose }: ComposePackage,
): Promise<Remark[]> {
  const text = await files.text(file);
  if (text === undefined) return [missingFile("compose", file, lines)];
  const written = readComposeFile(text);
  if ("problems" in written) return written.problems.map((problem) => ({ file, ...problem }));
  const compose = await findCompose?.();
  // With compose, reading the model checks the sources.
  const problems =
    compose === undefined ? await remarksOf(file, text, () => requireSafeSources(files, file)) : [];
  if (problems.length === 0) {
    const options = { compose, profiles, env: variablesFor(manifest, env, files.root) };
    problems.push(
      ...(await remarksOf(file, text, async () => {
        const reading = await readComposeModel(files, file, options);
        if ("problems" in reading) return;
        for (const { permission, sentence, line } of reading.model.requirements) {
          if (isGranted(manifest.permissions, permission)) continue;
          const message = `${sentence}; add "${permission}" to permissions in ${manifestFileName}`;
          problems.push({ file, line, message });
        }
      })),
    );
  }
  if (manifest.health?.probe.kind === "exec") {
    const message =
      "health.exec is not supported for compose projects; use a healthcheck in the compose file";
    problems.push({ file: manifestFileName, line: lines("health"), message });
  }
  return problems;
}

/** The variables that an app has before any setting is chosen; its directories stay inside the package. */
function variablesFor(
  manifest: Manifest,
  env: Readonly<Record<string, string>>,
  root: string,
): Record<string, string> {
  const { texts, env: chosen } = resolveSettings(manifest, {});
  const scope: Record<string, string> = {
    ...{ id: manifest.id, name: manifest.name, repo: root, data: join(root, "data") },
    ...Object.fromEntries(
      manifest.volumes.map(({ name }) => [`volumes.${name}`, join(root, "volumes", name)]),
    ),
    ...Object.fromEntries(
      resolvePorts(manifest, {}).map(({ name, port }) => [`ports.${name}`, String(port)]),
    ),
    ...Object.fromEntries(Object.entries(texts).map(([name, text]) => [`settings.${name}`, text])),
  };
  return { ...mapValues(env, (text) => expandPlaceholders(text, scope)), ...chosen };
}

async function serviceUnitProblems(
  files: PackageFiles,
  unit: string,
  manifest: Manifest,
  lines: Lines,
): Promise<Remark[]> {
  const text = await files.text(unit);
  if (text === undefined) return [missingFile("service", unit, lines)];
  const isPrivileged = manifest.permissions.includes("privileged");
  return unitProblems(text, isPrivileged).map((problem) => ({ file: unit, ...problem }));
}

function missingFile(key: string, file: string, lines: Lines): Remark {
  return { file: manifestFileName, line: lines(key), message: `${key}: there is no ${file} in the package` };
}

/** The error of a check of a whole file, at the line that it quotes. */
async function remarksOf(file: string, text: string, check: () => Promise<void> | void): Promise<Remark[]> {
  try {
    await check();
    return [];
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    const [, line, rest] = /^line (\d+): (.*)$/s.exec(withoutFile(error.message, file)) ?? [];
    if (line !== undefined && rest !== undefined) return [{ file, line: Number(line), message: rest }];
    const quoted = /"([^"]+)"/.exec(error.message)?.[1];
    const found = quoted === undefined ? -1 : text.split("\n").findIndex((each) => each.includes(quoted));
    return [{ file, line: Math.max(1, found + 1), message: withoutFile(error.message, file) }];
  }
}

function withoutFile(message: string, file: string): string {
  return message.startsWith(`${file}: `) ? message.slice(file.length + 2) : message;
}

function adviceFor(manifest: Manifest, lines: Lines): Remark[] {
  const { ports, health, summary, runtime, limits } = manifest;
  const at = (key: string, message: string): Remark => ({
    file: manifestFileName,
    line: lines(key),
    message,
  });
  return [
    ...(summary === "" ? [at("name", "add a summary, which lists of packages show")] : []),
    ...(ports.length > 0 && health === undefined && runtime.kind !== "compose"
      ? [at("ports", "add a health check: health: { http: { port: NAME } }")]
      : []),
    ...(limits.memoryBytes === undefined && (runtime.kind === "process" || runtime.kind === "service")
      ? [
          at(
            runtime.kind,
            "without a limit, the app can use all memory of the host; add limits: { memory: 256MiB }",
          ),
        ]
      : []),
  ];
}

async function licenseAdvice(files: PackageFiles): Promise<Remark[]> {
  const names = (await files.names()).filter((name) => /^(LICENSE|LICENCE|COPYING|EULA)/i.test(name));
  return names.map((file) => ({ file, line: 1, message: "the install asks users to accept this license" }));
}

/**
 * Checks the index of a source, and each package in a directory beside it. @throws SvcError `not_found` without an
 * index
 */
export async function checkIndex(root: string, settingsThread: URL): Promise<Remark[]> {
  using settings = createSettingsValidator({ threadUrl: settingsThread });
  const { createIndexReader, indexFileName, maxIndexBytes } =
    await import("../packages/sources/source-index.ts");
  const files = new PackageFiles(root);
  const isThere = (await files.type(".")) === "directory";
  if (!isThere || !(await files.has(indexFileName))) {
    const what = isThere ? `${indexFileName} in ${root}` : `directory ${root}`;
    const message = `there is no ${what}; a source is a directory or a git repository with an ${indexFileName}, which lists packages by ID`;
    throw notFound("index", root, message);
  }
  let text: string;
  try {
    text = (await files.readFile(root, indexFileName, { maxBytes: maxIndexBytes })).toString();
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    return [{ file: indexFileName, line: 1, message: error.message }];
  }
  const result = await createIndexReader()(text);
  if ("problems" in result) return result.problems.map((problem) => ({ file: indexFileName, ...problem }));
  const remarks: Remark[] = [];
  for (const { id, location } of result.index.packages) {
    if (!("directory" in location)) continue;
    const { directory } = location;
    const line = Math.max(1, text.split("\n").findIndex((each) => each.trim().startsWith(`${id}:`)) + 1);
    if ((await files.type(directory)) !== "directory") {
      remarks.push({ file: indexFileName, line, message: `${id}: there is no directory "${directory}"` });
      continue;
    }
    const { manifest, problems } = await check(join(root, directory), settings);
    remarks.push(...problems.map((problem) => ({ ...problem, file: posix.join(directory, problem.file) })));
    if (manifest !== undefined && manifest.id !== id) {
      const message = `${id}: the ID in the package is "${manifest.id}"`;
      remarks.push({ file: indexFileName, line, message });
    }
  }
  return remarks;
}
