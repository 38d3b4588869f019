/** Images made from nothing but busybox, as no registry can be reached. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
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
  workdir?: string;
  /** As in a Dockerfile, such as `--interval=200ms CMD ["/bin/test", "-e", "/healthy"]`. */
  healthcheck?: string;
  /** What is done when an image is built on it, such as `RUN make`. */
  triggers?: readonly string[];
  /** Texts by their paths; busybox and its commands are always there. */
  files?: Readonly<Record<string, string>>;
  /** Directories of this host that are there as here. */
  trees?: readonly string[];
  /** Programs of this host, whose libraries are there, too. */
  programs?: readonly string[];
}

export class TestImages {
  readonly #dir: string;
  readonly #socket: string;
  #base: Promise<string> | undefined;

  constructor(dir: string, socket: string) {
    this.#dir = dir;
    this.#socket = socket;
  }

  /** Makes the image `tag`, such as `svc/web:1`, and answers its id; the default command sleeps until it is ended. */
  async build(tag: string, contents: ImageContents = {}): Promise<string> {
    this.#base ??= makeBase(join(this.#dir, "rootfs"));
    const base = await this.#base;
    const root = join(await mkdtemp(join(this.#dir, "image-")), "rootfs");
    await promisify(execFile)("cp", ["--archive", "--link", base, root]);
    for (const [path, text] of Object.entries(contents.files ?? {})) {
      const file = join(root, path);
      await mkdir(dirname(file), { recursive: true });
      // Not into the file that all images share.
      await rm(file, { force: true });
      await writeFile(file, text);
      await chmod(file, 0o755);
    }
    const { trees = [], programs = [] } = contents;
    const whole = [...trees, ...(await librariesOf(programs))];
    if (whole.length > 0)
      await promisify(execFile)("cp", ["--recursive", "--dereference", "--parents", ...whole, root]);
    const tar = spawn("tar", ["-c", "-C", root, "."], { stdio: ["ignore", "pipe", "inherit"] });
    const ended = once(tar, "close") as Promise<[number | null]>;
    const query = new URLSearchParams({ fromSrc: "-", repo: repositoryOf(tag), tag: tagOf(tag) });
    for (const change of changesOf(contents)) query.append("changes", change);
    const answer = await engineRequest(
      this.#socket,
      "POST",
      `/images/create?${query.toString()}`,
      tar.stdout,
    );
    const [exitCode] = await ended;
    await rm(dirname(root), { recursive: true });
    answer.expect(200);
    const id = /"status":"(sha256:[0-9a-f]{64})"/.exec(answer.text)?.[1];
    if (exitCode !== 0 || id === undefined) throw new Error(`cannot make ${tag}: ${answer.text}`);
    return id;
  }

  /** Gives an image another name. */
  async tag(image: string, tag: string): Promise<void> {
    const query = new URLSearchParams({ repo: repositoryOf(tag), tag: tagOf(tag) });
    const path = `/images/${encodeURIComponent(image)}/tag?${query.toString()}`;
    (await engineRequest(this.#socket, "POST", path)).expect(201);
  }

  /** Pushes `tag` to the registry that it names; answers the digest that the registry gave it. */
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

/** A root directory with busybox under the names of all its commands. */
async function makeBase(dir: string): Promise<string> {
  for (const name of ["bin", "etc", "tmp", "data"]) await mkdir(join(dir, name), { recursive: true });
  await chmod(join(dir, "tmp"), 0o1777);
  await copyFile("/bin/busybox", join(dir, "bin/busybox"));
  await writeFile(join(dir, "etc/passwd"), "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n");
  await writeFile(join(dir, "etc/group"), "root:x:0:\nnogroup:x:65534:\n");
  const { stdout } = await promisify(execFile)("/bin/busybox", ["--list"]);
  for (const command of stdout.split("\n")) {
    if (command !== "" && command !== "busybox") await symlink("busybox", join(dir, "bin", command));
  }
  return dir;
}

/** What the dynamic linker loads for them, itself, too. */
async function librariesOf(programs: readonly string[]): Promise<string[]> {
  if (programs.length === 0) return [];
  const { stdout } = await promisify(execFile)("ldd", [...programs]);
  return [...new Set([...stdout.matchAll(/(\/\S+) \(0x/g)].map(([, path = ""]) => path))];
}

function changesOf(contents: ImageContents): string[] {
  const { cmd = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done"] } = contents;
  const pairs = (instruction: string, values: Readonly<Record<string, string>> = {}): string[] =>
    Object.entries(values).map(
      ([name, value]) => `${instruction} ${JSON.stringify(name)}=${JSON.stringify(value)}`,
    );
  return [
    `CMD ${JSON.stringify(cmd)}`,
    ...(contents.entrypoint === undefined ? [] : [`ENTRYPOINT ${JSON.stringify(contents.entrypoint)}`]),
    "ENV PATH=/bin",
    ...pairs("ENV", contents.env),
    ...pairs("LABEL", contents.labels),
    ...(contents.ports ?? []).map((port) => `EXPOSE ${port}`),
    ...(contents.volumes === undefined ? [] : [`VOLUME ${JSON.stringify(contents.volumes)}`]),
    ...(contents.user === undefined ? [] : [`USER ${contents.user}`]),
    ...(contents.workdir === undefined ? [] : [`WORKDIR ${contents.workdir}`]),
    ...(contents.healthcheck === undefined ? [] : [`HEALTHCHECK ${contents.healthcheck}`]),
    ...(contents.triggers ?? []).map((trigger) => `ONBUILD ${trigger}`),
  ];
}

/** The engine takes no other: without the padding it would silently know no password. */
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
