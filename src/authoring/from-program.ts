/** Generates manifests for programs that run as processes, from their own files. */
import { SvcError } from "../errors.ts";
import type { CommandDocument, ManifestDocument, ProcessDocument } from "../../gen/manifest-document.ts";
import { portSetting, type Derived } from "./derived.ts";
import type { PackageFiles } from "./package-files.ts";

const listens = "the program gets its port in the variable PORT; make sure that it listens there";

/** Passes the port in PORT, as most hosting platforms do. */
function withPort(process: ProcessDocument, rest: Partial<ManifestDocument>): Partial<ManifestDocument> {
  return {
    ...rest,
    process,
    settings: { properties: { port: portSetting(8_080, "PORT") } },
    ports: [{ name: "http", setting: "port" }],
    health: { tcp: { port: "http" } },
  };
}

/** An assignment, or a shell keyword, at the start of a line. */
const beginsInShell =
  /^(?:\w+=|(?:\.|!|\{|source|cd|export|exec|eval|set|unset|umask|ulimit|trap|wait|if|for|while|until|case)(?:\s|$))/;
/** Characters that join several commands in a line. */
const joinsCommands = /[;&|()`\n]/;

/**
 * The arguments of a line without shell syntax; otherwise a shell with the line, which `exec` replaces by a single
 * command.
 */
function argvOf(whole: string): string[] {
  const line = whole.trim();
  // The shell's variables are not placeholders of the manifest.
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
        ? ["there is no lockfile, so each install may use other versions of the dependencies"]
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
    throw new SvcError("package_invalid", `${file}: it is not an object`);
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

/** A virtual environment in the checkout, if the package lists requirements. */
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
      ...(others.length > 0 ? [`only its process "${main}" runs, not ${others.join(", ")}`] : []),
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

/** A program without a `start` script. */
export async function fromNode(files: PackageFiles, name: string): Promise<Derived> {
  const build = await nodeModules(files, parse((await files.text("package.json")) ?? "{}", "package.json"));
  return {
    from: name,
    notes: [listens],
    manifest: withPort(
      { ...(build.length > 0 && { build }), exec: ["node", name] },
      { summary: "A program for Node." },
    ),
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
    notes: ["Python serves the pages only on this host; put a web server in front of it for other hosts"],
    manifest: {
      summary: "Static pages.",
      process: { exec, env: { PYTHONUNBUFFERED: "1" } },
      settings: { properties: { port: portSetting(8_080) } },
      ports: [{ name: "http", setting: "port" }],
      health: { http: { port: "http" } },
    },
  });
}
