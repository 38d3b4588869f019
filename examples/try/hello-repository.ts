/** Creates a git repository of `hello` with a tag per release, as its author would publish it. */
import { execFile } from "node:child_process";
import { access, mkdtemp, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const gitTimeoutMs = 30_000;

/** Directory below `examples/` of each release, oldest first. */
const releases = [
  {
    tag: "v1.0.0",
    directory: "releases/hello-1.0.0",
    date: "2026-01-05T10:00:00Z",
    message: "Greet visitors",
  },
  { tag: "v1.1.0", directory: "hello", date: "2026-02-09T10:00:00Z", message: "Count visitors" },
];

/** Ignores the user's configuration, and makes commits reproducible. */
const environment = {
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "hello",
  GIT_AUTHOR_EMAIL: "hello@example.org",
  GIT_COMMITTER_NAME: "hello",
  GIT_COMMITTER_EMAIL: "hello@example.org",
};

/**
 * Creates a bare repository of `hello` at `target`, unless it exists: later commits in it stay.
 * @throws Error when git is missing or fails.
 */
export async function createHelloRepository(examples: string, target: string): Promise<void> {
  if (await exists(target)) return;
  const scratch = await mkdtemp(join(dirname(target), "hello-"));
  try {
    const repository = join(scratch, "hello.git");
    await git(["init", "--quiet", "--bare", "--initial-branch=main", "--shared=0644", repository]);
    for (const { tag, directory, date, message } of releases) {
      const inRelease = [`--git-dir=${repository}`, `--work-tree=${join(examples, directory)}`];
      await git([...inRelease, "add", "--all", "."], date, join(examples, directory));
      await git([...inRelease, "commit", "--quiet", `--message=${message}`], date);
      await git([...inRelease, "tag", "--annotate", `--message=${tag}`, tag], date);
    }
    await rename(repository, target);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function git(args: string[], date = "", cwd?: string): Promise<void> {
  await promisify(execFile)("git", args, {
    cwd,
    env: { ...process.env, ...environment, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date },
    timeout: gitTimeoutMs,
  });
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
