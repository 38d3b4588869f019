/** Real git repositories for tests. */
import { execFile } from "node:child_process";
import { chown, mkdir, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export const minimalManifest = (id: string, version: string): string =>
  `id: ${id}\nname: ${id.toUpperCase()}\nversion: "${version}"\nprocess: {exec: [node, server.js]}\n`;

/** A checkout with a `git` function. */
export class TestRepository {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async create(path: string): Promise<TestRepository> {
    await mkdir(path, { recursive: true });
    const repository = new TestRepository(path);
    await repository.git("init", "--quiet", "--initial-branch=main");
    return repository;
  }

  /** An existing one. */
  static at(path: string): TestRepository {
    return new TestRepository(path);
  }

  async git(...args: string[]): Promise<string> {
    const env = {
      PATH: process.env["PATH"] ?? "",
      GIT_CONFIG_GLOBAL: "/dev/null",
      GIT_CONFIG_NOSYSTEM: "1",
      GIT_AUTHOR_NAME: "A",
      GIT_AUTHOR_EMAIL: "a@example.org",
      GIT_COMMITTER_NAME: "A",
      GIT_COMMITTER_EMAIL: "a@example.org",
    };
    const identity = ["-c", "safe.directory=*", "-C", this.path];
    const { stdout } = await run("git", [...identity, ...args], { env });
    return stdout.trim();
  }

  /** Writes files, commits everything, and returns the commit. */
  async commit(files: Readonly<Record<string, string>>, tag?: string): Promise<string> {
    for (const [name, content] of Object.entries(files)) {
      const path = join(this.path, name);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, content);
    }
    await this.git("add", "--all", "--force");
    await this.git("commit", "--quiet", "--allow-empty", "--message", "change");
    if (tag !== undefined) await this.git("tag", "--annotate", "--message", tag, tag);
    return this.git("rev-parse", "HEAD");
  }

  /** Gives the whole tree to a user. */
  async giveTo(uid: number): Promise<void> {
    const names = await readdir(this.path, { recursive: true });
    await Promise.all(["", ...names].map((name) => chown(join(this.path, name), uid, uid)));
  }

  get fileUrl(): string {
    return `file://${this.path}`;
  }
}
