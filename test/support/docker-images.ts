/** Images built only from busybox, because no registry is reachable. */
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { chmod, copyFile, link, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { engineRequest } from "./docker-request.ts";
import type { RegistryUser } from "./docker-registry.ts";

export interface ImageContents {
  cmd?: readonly string[];
  entrypoint?: readonly string[];
  env?: Readonly<Record<string, string>>;
  labels?: Readonly<Record<string, string>>;
  /** Such as `8080/tcp`. */
  ports?: readonly string[];
  /** Paths of anonymous volumes. */
  volumes?: readonly string[];
  user?: string;
  /** The engine's name of the architecture, such as `arm64`; default: this host's. */
  architecture?: string;
  workdir?: string;
  healthcheck?: {
    readonly command: readonly string[];
    readonly intervalMs: number;
    readonly retries: number;
  };
  /** Instructions that run when an image is built on it, such as `RUN make`. */
  triggers?: readonly string[];
  /** File contents by path; busybox and its commands are always included. */
  files?: Readonly<Record<string, string>>;
  /** Directories of this host to copy to the same path. */
  trees?: readonly string[];
  /** Programs of this host to copy, with their libraries. */
  programs?: readonly string[];
}

/** A file in `/images/load`'s archive, and its digest in an image. */
interface Layer {
  readonly file: string;
  readonly digest: string;
}

export class TestImages {
  readonly #dir: string;
  readonly #socket: string;
  #base: Promise<Layer> | undefined;

  constructor(dir: string, socket: string) {
    this.#dir = dir;
    this.#socket = socket;
  }

  /**
   * Creates the image `tag`, such as `svc/web:1`, and returns its ID; the default command sleeps until it is stopped.
   * The common files are one layer that the engine unpacks once and all images share.
   */
  async build(tag: string, contents: ImageContents = {}): Promise<string> {
    this.#base ??= makeBase(await mkdtemp(join(this.#dir, "base-")));
    const base = await this.#base;
    const dir = await mkdtemp(join(this.#dir, "image-"));
    const own = await makeOwn(dir, contents);
    const layers = own === undefined ? [base] : [base, own];
    const config = JSON.stringify(configOf(contents, layers));
    const names = layers.map((_, at) => `${String(at)}.tar`);
    const archive = join(dir, "archive");
    await mkdir(archive);
    await Promise.all(layers.map(({ file }, at) => link(file, join(archive, `${String(at)}.tar`))));
    await writeFile(join(archive, "config.json"), config);
    const described = [{ Config: "config.json", RepoTags: [tag], Layers: names }];
    await writeFile(join(archive, "manifest.json"), JSON.stringify(described));
    const tar = spawn("tar", ["-c", "-C", archive, "."], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(tar, "close") as Promise<[number | null]>;
    const answer = await engineRequest(this.#socket, "POST", "/images/load?quiet=1", tar.stdout);
    const [exitCode] = await ended;
    await rm(dir, { recursive: true });
    answer.expect(200);
    if (exitCode !== 0 || !answer.text.includes("Loaded image")) {
      throw new Error(`cannot make ${tag}: ${answer.text}`);
    }
    return `sha256:${createHash("sha256").update(config).digest("hex")}`;
  }

  /** Gives an image another name. */
  async tag(image: string, tag: string): Promise<void> {
    const query = new URLSearchParams({ repo: repositoryOf(tag), tag: tagOf(tag) });
    const path = `/images/${encodeURIComponent(image)}/tag?${query.toString()}`;
    (await engineRequest(this.#socket, "POST", path)).expect(201);
  }

  /** Pushes `tag` to its registry; returns the digest. */
  async push(tag: string, user?: RegistryUser): Promise<string> {
    const credentials = user === undefined ? {} : { username: user.name, password: user.password };
    const answer = await engineRequest(
      this.#socket,
      "POST",
      `/images/${repositoryOf(tag)}/push?tag=${tagOf(tag)}`,
      undefined,
      { "x-registry-auth": paddedBase64Url(JSON.stringify(credentials)) },
    );
    answer.expect(200);
    const digest = /"Digest":"(sha256:[0-9a-f]{64})"/.exec(answer.text)?.[1];
    if (digest === undefined) throw new Error(`cannot push ${tag}: ${answer.text}`);
    return digest;
  }

  /** Removes a name, and the image with its last one. */
  async remove(image: string): Promise<void> {
    (await engineRequest(this.#socket, "DELETE", `/images/${image}?force=1`)).expect(200);
  }
}

/** The engine's name of the architecture. */
export const hostArchitecture = process.arch === "x64" ? "amd64" : process.arch;

/** Busybox under the names of all its commands. */
async function makeBase(dir: string): Promise<Layer> {
  const root = await makeRoot(dir);
  await copyFile("/bin/busybox", join(root, "bin/busybox"));
  await writeFile(
    join(root, "etc/passwd"),
    "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
  );
  await writeFile(join(root, "etc/group"), "root:x:0:\nnogroup:x:65534:\n");
  const { stdout } = await promisify(execFile)("/bin/busybox", ["--list"]);
  for (const command of stdout.split("\n")) {
    if (command !== "" && command !== "busybox") await symlink("busybox", join(root, "bin", command));
  }
  return layerOf(dir, root);
}

/** The files of an image beyond the base, if any. */
async function makeOwn(dir: string, contents: ImageContents): Promise<Layer | undefined> {
  const { files = {}, trees = [], programs = [] } = contents;
  const whole = [...trees, ...(await librariesOf(programs))];
  if (whole.length === 0 && Object.keys(files).length === 0) return undefined;
  const root = await makeRoot(dir);
  for (const [path, text] of Object.entries(files)) {
    const file = join(root, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text);
    await chmod(file, 0o755);
  }
  if (whole.length > 0)
    await promisify(execFile)("cp", ["--recursive", "--dereference", "--parents", ...whole, root]);
  return layerOf(dir, root);
}

/** The directories that every layer contains identically. */
async function makeRoot(dir: string): Promise<string> {
  const root = join(dir, "rootfs");
  for (const name of ["bin", "etc", "tmp", "data"]) await mkdir(join(root, name), { recursive: true });
  await chmod(join(root, "tmp"), 0o1777);
  return root;
}

async function layerOf(dir: string, root: string): Promise<Layer> {
  const file = join(dir, "layer.tar");
  await promisify(execFile)("tar", ["-c", "-f", file, "-C", root, "."]);
  await rm(root, { recursive: true });
  const hash = createHash("sha256");
  for await (const piece of createReadStream(file)) hash.update(piece as Buffer);
  return { file, digest: `sha256:${hash.digest("hex")}` };
}

/** The libraries that the dynamic linker loads for them, including itself. */
async function librariesOf(programs: readonly string[]): Promise<string[]> {
  if (programs.length === 0) return [];
  const { stdout } = await promisify(execFile)("ldd", [...programs]);
  return [...new Set([...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path = ""]) => path))];
}

/** In the format of the image specification. */
function configOf(contents: ImageContents, layers: readonly Layer[]): object {
  const { cmd = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done"] } = contents;
  const {
    entrypoint,
    env = {},
    labels,
    ports = [],
    volumes = [],
    user,
    workdir,
    healthcheck,
    triggers,
    architecture = hostArchitecture,
  } = contents;
  const setOf = (names: readonly string[]): object => Object.fromEntries(names.map((name) => [name, {}]));
  const created = new Date().toISOString();
  return {
    architecture,
    os: "linux",
    created,
    config: {
      Cmd: cmd,
      Entrypoint: entrypoint,
      Env: ["PATH=/bin", ...Object.entries(env).map(([name, value]) => `${name}=${value}`)],
      Labels: labels,
      ...(ports.length > 0 && { ExposedPorts: setOf(ports) }),
      ...(volumes.length > 0 && { Volumes: setOf(volumes) }),
      User: user,
      WorkingDir: workdir,
      ...(healthcheck !== undefined && {
        Healthcheck: {
          Test: ["CMD", ...healthcheck.command],
          Interval: healthcheck.intervalMs * 1_000_000,
          Retries: healthcheck.retries,
        },
      }),
      OnBuild: triggers,
    },
    history: layers.map(() => ({ created })),
    rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
  };
}

/** The engine accepts only padded base64; otherwise it silently ignores the password. */
function paddedBase64Url(text: string): string {
  return Buffer.from(text).toString("base64").replaceAll("+", "-").replaceAll("/", "_");
}

function repositoryOf(tag: string): string {
  return tag.slice(0, tag.length - tagOf(tag).length - 1);
}

function tagOf(tag: string): string {
  const text = tag.slice(tag.lastIndexOf(":") + 1);
  if (text === tag || text.includes("/")) throw new Error(`${tag} must end with a tag`);
  return text;
}
