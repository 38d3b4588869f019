/** Manifests for programs that run as a plain process: what starts and builds them, as their own files say. */
import { SvcError } from "../errors.ts";
import type { CommandDocument, ManifestDocument, ProcessDocument } from "../../gen/manifest-document.ts";
import { portSetting, type Derived } from "./derived.ts";
import type { PackageFiles } from "./package-files.ts";

const listens = "it is told its port as PORT: see that it listens there";

/** Programs are told their port as most hosts do it. */
function withPort(process: ProcessDocument, rest: Partial<ManifestDocument>): Partial<ManifestDocument> {
  return {
    ...rest,
    process,
    settings: { properties: { port: portSetting(8_080, "PORT") } },
    ports: [{ name: "http", setting: "port" }],
    health: { tcp: { port: "http" } },
  };
}

/** An assignment, or a word that only a shell knows, at the beginning of a line. */
const beginsInShell =
  /^(?:\w+=|(?:\.|!|\{|source|cd|export|exec|eval|set|unset|umask|ulimit|trap|wait|if|for|while|until|case)(?:\s|$))/;
/** What makes several commands of a line, wherever it stands. */
const joinsCommands = /[;&|()`\n]/;

/** `argv` of a line without anything that only a shell does; else of a shell, whose place a single command takes. */
function argvOf(whole: string): string[] {
  const line = whole.trim();
  // What is the shell's to expand is no placeholder of the manifest's.
  const escaped = line.replaceAll("${", () => "$${");
  if (beginsInShell.test(line) || joinsCommands.test(line)) return ["sh", "-c", escaped];
  return /^[\w@%+=:,./ -]+$/.test(line) ? line.split(/\s+/) : ["sh", "-c", `exec ${escaped}`];
}

interface PackageJson {
  readonly name?: unknown;
  readonly version?: unknown;
  readonly description?: unknown;
  readonly homepage?: unknown;
  readonly main?: unknown;
  readonly scripts?: Readonly<Record<string, unknown>>;
  readonly dependencies?: object;
  readonly devDependencies?: object;
}

export async function fromPackageJson(files: PackageFiles, name: string): Promise<Derived | undefined> {
  const parsed = parse((await files.text(name)) ?? "{}", name);
  const { start, build } = parsed.scripts ?? {};
  const isNode = typeof start === "string" && /^node\s+[\w./-]+$/.test(start.trim());
  const exec =
    typeof start === "string"
      ? isNode
        ? argvOf(start)
        : ["npm", "start"]
      : typeof parsed.main === "string"
        ? ["node", parsed.main]
        : undefined;
  if (exec === undefined) return undefined;
  const steps = [
    ...(await nodeModules(files, parsed)),
    ...(typeof build === "string" ? [{ exec: ["npm", "run", "build"] }] : []),
  ];
  return {
    from: name,
    notes: [
      listens,
      ...(steps.length > 0 && !(await files.has("package-lock.json")) && !(await files.has("yarn.lock"))
        ? ["there is no lockfile: each install may bring other versions of what it needs"]
        : []),
    ],
    manifest: withPort(
      { ...(steps.length > 0 && { build: steps }), exec },
      {
        ...text("id", parsed.name, /^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$/),
        ...text("version", parsed.version, /^[0-9A-Za-z][0-9A-Za-z.+_-]*$/),
        summary:
          typeof parsed.description === "string" ? parsed.description.slice(0, 256) : "A program for Node.",
        ...text("homepage", parsed.homepage, /^https?:\/\/\S+$/),
      },
    ),
  };
}

/** @throws SvcError `package_invalid` */
function parse(json: string, file: string): PackageJson {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new SvcError("package_invalid", `${file}: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null)
    throw new SvcError("package_invalid", `${file}: it is no object`);
  return value;
}

function text<K extends string>(key: K, value: unknown, form: RegExp): { [P in K]?: string } {
  return (typeof value === "string" && form.test(value) ? { [key]: value } : {}) as { [P in K]?: string };
}

async function nodeModules(files: PackageFiles, parsed: PackageJson): Promise<CommandDocument[]> {
  const needs = {
    ...parsed.dependencies,
    ...(parsed.scripts?.["build"] !== undefined && parsed.devDependencies),
  };
  if (Object.keys(needs).length === 0) return [];
  if (await files.has("package-lock.json")) return [{ exec: ["npm", "ci", "--no-audit", "--no-fund"] }];
  if (await files.has("yarn.lock")) return [{ exec: ["yarn", "install", "--frozen-lockfile"] }];
  return [{ exec: ["npm", "install", "--no-audit", "--no-fund"] }];
}

const venvPath = "${repo}/.venv/bin:/usr/local/bin:/usr/bin:/bin";

/** A virtual environment in the checkout, where the package says what it needs. */
async function python(files: PackageFiles): Promise<Pick<ProcessDocument, "build" | "env">> {
  if (!(await files.has("requirements.txt"))) return { env: { PYTHONUNBUFFERED: "1" } };
  return {
    build: [
      { exec: ["python3", "-m", "venv", ".venv"] },
      { exec: [".venv/bin/pip", "install", "--requirement", "requirements.txt"] },
    ],
    env: { PATH: venvPath, PYTHONUNBUFFERED: "1" },
  };
}

export async function fromProcfile(files: PackageFiles, name: string): Promise<Derived | undefined> {
  const types = new Map(
    [...((await files.text(name)) ?? "").matchAll(/^([A-Za-z0-9_-]+):\s*(.+?)\s*$/gm)].map(
      ([, type = "", line = ""]) => [type, line],
    ),
  );
  const main = types.has("web") ? "web" : [...types.keys()].find((type) => type !== "release");
  if (main === undefined) return undefined;
  const { build: pip, env } = await python(files);
  const isPython = pip !== undefined;
  const json = (await files.has("package.json")) ? await fromPackageJson(files, "package.json") : undefined;
  const build = pip ?? json?.manifest.process?.build;
  const release = types.get("release");
  const others = [...types.keys()].filter((type) => type !== main && type !== "release");
  return {
    from: name,
    notes: [
      listens,
      ...(others.length > 0 ? [`of its processes "${main}" is run, and not ${others.join(", ")}`] : []),
    ],
    manifest: {
      ...withPort(
        { ...(build && { build }), exec: argvOf(types.get(main) ?? ""), ...(isPython && env && { env }) },
        { summary: `The ${main} process of its Procfile.` },
      ),
      ...(release !== undefined && { migrate: { exec: argvOf(release) } }),
    },
  };
}

export async function fromPython(files: PackageFiles, name: string): Promise<Derived> {
  return {
    from: name,
    notes: [listens],
    manifest: withPort(
      { ...(await python(files)), exec: ["python3", name] },
      { summary: "A program in Python." },
    ),
  };
}

export function fromGo(_files: PackageFiles, name: string): Promise<Derived> {
  return Promise.resolve({
    from: name,
    notes: [listens],
    manifest: withPort(
      { build: [{ exec: ["go", "build", "-o", "bin/app", "."] }], exec: ["bin/app"] },
      { summary: "A program in Go." },
    ),
  });
}

export function fromPages(_files: PackageFiles, name: string): Promise<Derived> {
  const directory = name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : ".";
  const exec = [
    "python3",
    "-m",
    "http.server",
    "${ports.http}",
    "--bind",
    "127.0.0.1",
    "--directory",
    directory,
  ];
  return Promise.resolve({
    from: name,
    notes: ["Python serves the pages, on this host alone: put a web server before it for others"],
    manifest: {
      summary: "Static pages.",
      process: { exec, env: { PYTHONUNBUFFERED: "1" } },
      settings: { properties: { port: portSetting(8_080) } },
      ports: [{ name: "http", setting: "port" }],
      health: { http: { port: "http" } },
    },
  });
}
