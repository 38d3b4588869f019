/** Small packages for tests: a web server without dependencies, in a directory or in a git repository with tags. */
import { execFile } from "node:child_process";
import { randomInt } from "node:crypto";
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { createServer, type ListenOptions, type Server } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export interface PackageOptions {
  id?: string;
  name?: string;
  version?: string;
  /** Extra top-level YAML of the manifest. */
  manifest?: string;
  /** One more setting, as YAML. */
  settings?: string;
  /** Other files, by name. */
  files?: Readonly<Record<string, string>>;
}

const server = `
import { createServer } from "node:http";
const port = Number(process.env.PORT);
console.log("listening on " + port + " with greeting " + process.env.GREETING);
console.error("a line on stderr");
createServer((request, response) => {
  if (request.url === "/exit") process.exit(3);
  response.end(JSON.stringify({
    version: process.env.VERSION, greeting: process.env.GREETING, uid: process.getuid(), groups: process.getgroups(),
    env: Object.keys(process.env), cwd: process.cwd(),
  }));
}).listen(port, "127.0.0.1");
`;

function manifestOf(
  { id = "web", name = "Test web server", version = "1.0.0", manifest = "", settings = "" }: PackageOptions,
  port: number,
): string {
  return `id: ${id}
name: ${JSON.stringify(name)}
version: "${version}"
summary: Answers with what it was given.
process:
  exec: [node, server.mjs]
  env: { VERSION: "${version}" }
ports:
  - { name: http, setting: port }
settings:
  properties:
    port: { type: integer, minimum: 1, maximum: 65535, default: ${port}, env: PORT }
    greeting: { type: string, maxLength: 40, default: hello, env: GREETING }
    password: { type: string, secret: true, env: PASSWORD }
    ${settings}
volumes:
  - { name: media }
${manifest}
`;
}

/** Writes the files of a package, by name; all users may read them. */
export async function writeFiles(
  dir: string,
  files: Readonly<Record<string, string | Buffer>>,
): Promise<void> {
  await mkdir(dir, { recursive: true });
  await chmod(dir, 0o755);
  for (const [name, content] of Object.entries(files)) await writeFile(join(dir, name), content);
}

export async function writePackage(dir: string, port: number, options: PackageOptions = {}): Promise<void> {
  await writeFiles(dir, {
    "svc.yaml": manifestOf(options, port),
    "server.mjs": server,
    ...options.files,
  });
}

export interface ProjectOptions {
  id: string;
  /** Run by the shell of the image `svc/box:latest`. */
  script: string;
  /** Mount paths of the project's volumes, by name. */
  volumes: Readonly<Record<string, string>>;
  /** Further keys of its one service, `web`. */
  service?: Readonly<Record<string, unknown>>;
  /** Extra top-level YAML of the manifest. */
  manifest?: string;
}

/** The files of a compose project with volumes. */
export function projectFiles({ id, script, volumes, service = {}, manifest = "" }: ProjectOptions): {
  "svc.yaml": string;
  "compose.yaml": string;
} {
  const document = {
    services: {
      web: {
        image: "svc/box:latest",
        command: ["/bin/sh", "-c", script],
        volumes: Object.entries(volumes).map(([name, path]) => `${name}:${path}`),
        ...service,
      },
    },
    volumes: Object.fromEntries(Object.keys(volumes).map((name) => [name, {}])),
  };
  return {
    "svc.yaml": `id: ${id}\nname: Keeper\nversion: "1.0.0"\ncompose: { file: compose.yaml }\n${manifest}`,
    // JSON is YAML; compose reads two dollars as one.
    "compose.yaml": JSON.stringify(document).replaceAll("$", "$$$$"),
  };
}

/** A repository in which each version is a tag `v<version>`; resolves with its file URL. */
export async function writeRepository(
  dir: string,
  port: number,
  versions: readonly PackageOptions[],
): Promise<string> {
  await mkdir(dir, { recursive: true });
  const git = (...args: string[]): Promise<unknown> =>
    run("git", ["-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org", ...args]);
  await git("init", "--quiet", "--initial-branch=main");
  for (const options of versions) await commitVersion(dir, port, options, git);
  return `file://${dir}`;
}

/** One more version in an existing repository. */
export async function addVersion(dir: string, port: number, options: PackageOptions): Promise<void> {
  await commitVersion(dir, port, options, (...args) =>
    run("git", ["-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org", ...args]),
  );
}

async function commitVersion(
  dir: string,
  port: number,
  options: PackageOptions,
  git: (...args: string[]) => Promise<unknown>,
): Promise<void> {
  await writePackage(dir, port, options);
  await git("add", "--all");
  await git("commit", "--quiet", "--message", `version ${options.version ?? "1.0.0"}`);
  await git("tag", `v${options.version ?? "1.0.0"}`);
}

/**
 * A TCP port that is free now, outside of the kernel's ephemeral range, and that no other test process of this machine
 * receives while this one runs.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 1_000; tries++) {
    const port = randomInt(10_000, 32_768);
    // An abstract socket: the kernel releases its name when this process ends, however it ends.
    const claim = await listen({ path: `\0svc-test-port-${port}` });
    if (claim === undefined) continue;
    const server = await listen({ port, host: "127.0.0.1" });
    if (server === undefined) {
      claim.close();
      continue;
    }
    await new Promise((resolve) => server.close(resolve));
    claim.unref();
    return port;
  }
  throw new Error("none of 1000 ports is free");
}

/** `undefined` if the address is in use. */
async function listen(address: ListenOptions): Promise<Server | undefined> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(undefined)).listen(address, () => resolve(server));
  });
}
