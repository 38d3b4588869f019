/** Limits on the memory and disk space of a repository. */
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createReadStream } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { mkdir, readdir, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { createGitProcess } from "../../../src/packages/git/git-process.ts";
import type { PackageResolver } from "../../../src/packages/package-resolver.ts";
import { SvcError } from "../../../src/errors.ts";
import { GitServer } from "../../support/git-server.ts";
import { minimalManifest, TestRepository } from "../../packages/support/repository.ts";
import { World } from "../../packages/support/world.ts";

const selfUid = process.getuid?.() ?? 0;
const mib = 2 ** 20;
/** git's memory limit in these tests, and a size that exceeds it. */
const maxMemoryBytes = 128 * mib;
const largeMib = 160;

/** This many zero bytes, in chunks. */
function zeros(sizeBytes: number): Readable {
  const piece = Buffer.alloc(mib);
  return Readable.from(
    (function* () {
      for (let left = sizeBytes; left > 0; left -= piece.length) yield piece;
    })(),
  );
}

/** Writes an object of a repository from a stream; returns its ID. */
async function hashObject(path: string, type: string, content: Readable): Promise<string> {
  const child = spawn(
    "git",
    ["-C", path, "-c", "core.bigFileThreshold=1m", "hash-object", "-t", type, "-w", "--stdin"],
    {
      stdio: ["pipe", "pipe", "inherit"],
    },
  );
  const [output] = await Promise.all([once(child.stdout, "data"), pipeline(content, child.stdin)]);
  return String(output[0]).trim();
}

/** Commits in the cache of the test's user. */
async function cached(world: World): Promise<string[]> {
  return readdir(world.path("cache", "git", String(selfUid))).catch(() => []);
}

test("a file that unpacks to more than git's memory limit is streamed", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "zeros"));
  await repository.commit({ "svc.yaml": minimalManifest("zeros", "1") });
  const blob = await hashObject(repository.path, "blob", zeros(largeMib * mib));
  await repository.git("update-index", "--add", "--cacheinfo", `100644,${blob},zeros`);
  await repository.git("commit", "--quiet", "--message", "zeros");
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver({ git: { limits: { maxMemoryBytes } } });
  for (const spec of [`${server.url}/zeros/.git`, repository.fileUrl]) {
    await using resolved = await resolver.resolve({ spec }, selfUid);
    t.is(resolved.manifest.id, "zeros");
  }
});

test("an object that must be unpacked in memory is rejected above git's limit", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "bomb"));
  const commit = await repository.commit({ "svc.yaml": minimalManifest("bomb", "1") });
  const header = await repository.git("cat-file", "commit", commit);
  const message = Readable.from([
    Buffer.from(`${header}\n`),
    ...Array.from({ length: largeMib }, () => Buffer.alloc(mib, "a")),
  ]);
  const bomb = await hashObject(repository.path, "commit", message);
  await repository.git("update-ref", "refs/heads/main", bomb);
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver({ git: { limits: { maxMemoryBytes } } });
  const work = resolver.resolve({ spec: `${server.url}/bomb/.git` }, selfUid);
  const error = await t.throwsAsync(work, { instanceOf: SvcError });
  t.like(error, { reason: "git_failed" });
  t.regex(error.message, /more memory than the limit for git/);
  t.deepEqual(await cached(world), [], "nothing of it is left");
});

/**
 * Serves a repository as plain files.
 * @param choose returns the file below `.git` to answer with; undefined does not answer
 * @returns its address
 */
async function serveFiles(
  t: ExecutionContext,
  repository: TestRepository,
  choose: (path: string) => string | undefined,
): Promise<string> {
  const name = basename(repository.path);
  const server = createServer((request, response) => {
    const pathname = /^\/[^/]+(\/[^?]*)/.exec(request.url ?? "")?.[1] ?? "/";
    const path = choose(pathname);
    if (path === undefined) return;
    createReadStream(join(repository.path, ".git", path))
      .on("error", () => response.writeHead(404).end())
      .pipe(response);
  }).listen(0, "127.0.0.1");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/${name}`;
}

test("the objects of a plain file server count toward the size limit during the fetch", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "plain"));
  const files = Array.from({ length: 40 }, (_, n): [string, string] => [
    `f${n}`,
    randomBytes(64 * 1024).toString("hex"),
  ]);
  await repository.commit({ "svc.yaml": minimalManifest("plain", "1"), ...Object.fromEntries(files) });
  await repository.git("update-server-info");
  let objects = 0;
  // After half of the objects it stops responding, so only the limit ends the fetch.
  const spec = await serveFiles(t, repository, (path) =>
    /\/objects\/..\//.test(path) && ++objects > 20 ? undefined : path,
  );
  const resolver = world.resolver({ git: { limits: { maxFetchBytes: mib / 2 } } });
  const error = await t.throwsAsync(resolver.resolve({ spec }, selfUid), { instanceOf: SvcError });
  t.regex(error.message, /is too large \(limit 524288 bytes\)/);
  t.deepEqual(await cached(world), [], "nothing of it is left");
});

test("an object that does not match its hash is not used", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "lying"));
  await repository.commit({ "svc.yaml": minimalManifest("lying", "1"), evil: minimalManifest("evil", "1") });
  await repository.git("update-server-info");
  const objectOf = async (name: string): Promise<string> => {
    const id = (await repository.git("rev-parse", `HEAD:${name}`)).trim();
    return `/objects/${id.slice(0, 2)}/${id.slice(2)}`;
  };
  const [asked, sent] = [await objectOf("svc.yaml"), await objectOf("evil")];
  let lies = 0;
  const spec = await serveFiles(t, repository, (path) => {
    if (path === asked) lies++;
    return path === asked ? sent : path;
  });
  const error = await t.throwsAsync(world.resolver().resolve({ spec }, selfUid), { instanceOf: SvcError });
  t.true(lies > 0);
  t.is(error.reason, "git_failed", error.message);
  t.deepEqual(await cached(world), [], "nothing of it is left");
});

test("the kernel kills a git that writes a file above the limit", async (t) => {
  await using world = await World.create();
  const { argv, env } = await import("../../../src/packages/git/git-command.ts").then(({ gitCommand }) =>
    gitCommand(["init", "--quiet", world.path("long")], { maxMemoryBytes: 512 * mib, maxFileBytes: 10 }),
  );
  const [program = "", ...args] = argv;
  const error = await t.throwsAsync(promisify(execFile)(program, args, { env }));
  t.like(error, { signal: "SIGXFSZ" });
});

test("a small tree that references itself repeatedly is not expanded", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "tree-bomb"));
  await repository.commit({ "svc.yaml": minimalManifest("tree-bomb", "1") });
  const tree = async (name: string, mode: string, oid: string): Promise<string> =>
    hashObject(
      repository.path,
      "tree",
      Readable.from(
        Array.from({ length: 10 }, (_, n) =>
          Buffer.concat([Buffer.from(`${mode} ${name}${n}\0`), Buffer.from(oid, "hex")]),
        ),
      ),
    );
  let oid = await tree("f", "100644", await hashObject(repository.path, "blob", Readable.from(["x"])));
  for (let depth = 0; depth < 4; depth++) oid = await tree("d", "40000", oid);
  // Written without an index, which would contain all of them.
  const manifest = await repository.git("rev-parse", "HEAD:svc.yaml");
  const root = await hashObject(
    repository.path,
    "tree",
    Readable.from([
      ...[Buffer.from("40000 bomb\0"), Buffer.from(oid, "hex")],
      ...[Buffer.from("100644 svc.yaml\0"), Buffer.from(manifest, "hex")],
    ]),
  );
  const commit = await repository.git("commit-tree", "-m", "bomb", root);
  await repository.git("update-ref", "refs/heads/main", commit);
  await using server = await GitServer.start(world.path("git"));
  const app = await world.ownedDir("app", selfUid);
  const resolver = world.resolver({ git: { limits: { maxExportEntries: 2_000 } } });
  for (const spec of [`${server.url}/tree-bomb/.git`, repository.fileUrl]) {
    await using resolved = await resolver.resolve({ spec }, selfUid);
    const error = await t.throwsAsync(resolved.exportTo(selfUid, app, "repo"), { instanceOf: SvcError });
    t.like(error, { reason: "git_failed" });
    t.regex(error.message, /more than 2000 files and directories/);
  }
});

test("a repository with too many refs is rejected before they are read", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "refs"));
  const commit = await repository.commit({ "svc.yaml": minimalManifest("refs", "1") });
  const tags = Array.from({ length: 40_000 }, (_, n) => `${commit} refs/tags/v1.0.${n}\n`);
  await writeFile(
    join(repository.path, ".git", "packed-refs"),
    `# pack-refs with: peeled fully-peeled sorted \n${tags.toSorted().join("")}`,
  );
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  for (const spec of [`${server.url}/refs/.git`, repository.fileUrl]) {
    const error = await t.throwsAsync(resolver.resolve({ spec }, selfUid), { instanceOf: SvcError });
    t.is(error.reason, "git_failed", error.message);
  }
});

test("files that exceed the limit when checked out are rejected", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "large"));
  await repository.commit({ "svc.yaml": minimalManifest("large", "1"), zeros: "0".repeat(2 * mib) });
  await using server = await GitServer.start(world.path("git"));
  const app = await world.ownedDir("app", selfUid);
  const resolver = world.resolver({ git: { limits: { maxExportBytes: mib } } });
  for (const spec of [`${server.url}/large/.git`, repository.fileUrl]) {
    await using resolved = await resolver.resolve({ spec }, selfUid);
    const error = await t.throwsAsync(resolved.exportTo(selfUid, app, "repo"), { instanceOf: SvcError });
    t.like(error, { reason: "git_failed" });
    t.regex(error.message, /too large \(limit 1048576 bytes\)/);
  }
});

test("a directory with too many names and a license that is too long are rejected", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "names"));
  await repository.commit({ "svc.yaml": minimalManifest("names", "1") });
  const manifest = await repository.git("rev-parse", "HEAD:svc.yaml");
  const entries = Array.from({ length: 30_000 }, (_, n) =>
    Buffer.concat([Buffer.from(`100644 a${String(n).padStart(80, "0")}\0`), Buffer.from(manifest, "hex")]),
  );
  const last = Buffer.concat([Buffer.from("100644 svc.yaml\0"), Buffer.from(manifest, "hex")]);
  const root = await hashObject(repository.path, "tree", Readable.from([...entries, last]));
  const commit = await repository.git("commit-tree", "-m", "names", root);
  await repository.git("update-ref", "refs/heads/main", commit);
  const licensed = await TestRepository.create(world.path("git", "licensed"));
  await licensed.commit({
    "svc.yaml": minimalManifest("licensed", "1"),
    LICENSE: "a".repeat(4 * mib + 1),
  });
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  for (const name of ["names", "licensed"]) {
    for (const spec of [`${server.url}/${name}/.git`, `file://${world.path("git", name)}`]) {
      const error = await t.throwsAsync(resolver.resolve({ spec }, selfUid), {
        instanceOf: SvcError,
      });
      t.is(error.reason, name === "names" ? "git_failed" : "package_invalid", error.message);
    }
  }
});

test("an error contains the last lines of git's output, each truncated", async (t) => {
  const surroundings = { maxMemoryBytes: 512 * mib, maxFileBytes: mib };
  const script = "!i=0; while [ $i -lt 100 ]; do printf '%03d%05000d\\n' $i 0 >&2; i=$((i+1)); done; exit 1";
  const work = createGitProcess(surroundings).run(["-c", `alias.complain=${script}`, "complain"], {
    subject: "a repository",
    timeoutMs: 60_000,
  });
  const error = await t.throwsAsync(work, { instanceOf: SvcError });
  const lines = (error.cause as Error).message.split("\n");
  t.is(lines.length, 20);
  for (const [n, line] of lines.entries()) {
    t.is(line.length, 1024);
    t.is(line.slice(0, 3), String(80 + n).padStart(3, "0"));
  }
});

async function install(resolver: PackageResolver, spec: string): Promise<void> {
  await using resolved = await resolver.resolve({ spec }, selfUid);
  resolved.retain();
}

test("all spellings of a URL share one fetched commit", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("git", "f"));
  await repository.commit({ "svc.yaml": minimalManifest("f", "1") });
  await symlink(world.path("git", "f"), world.path("git", "link"));
  await using server = await GitServer.start(world.path("git"));
  const resolver = world.resolver();
  const base = `file://${world.path("git")}`;
  for (const spec of [`${base}/f`, `${base}/f/`, `${base}//f`, `${base}/./f`, `${base}/link`, `${base}/%66`])
    await install(resolver, spec);
  for (const path of ["f/.git", "f/.git/", "./f/.git", "link/.git"])
    await install(resolver, `${server.url}/${path}`);
  t.is((await cached(world)).length, 1);
});

test("a cache above its limits removes the least recently used entries", async (t) => {
  await using world = await World.create();
  const noise = (): string => Array.from({ length: 55_000 }, () => Math.random().toString(36)).join("");
  const specs: string[] = [];
  for (const id of ["a", "b", "c", "d"]) {
    const repository = await TestRepository.create(world.path(id));
    await repository.commit({ "svc.yaml": minimalManifest(id, "1"), noise: noise() });
    specs.push(repository.fileUrl);
  }
  const [a = "", b = "", c = "", d = ""] = specs;
  const commitOf = async (spec: string): Promise<string> =>
    `${await TestRepository.at(spec.slice("file://".length)).git("rev-parse", "HEAD")}.git`;
  for (const bounds of [
    { maxBytesPerUser: 1.25 * mib, maxBytes: 1000 * mib },
    { maxBytesPerUser: 1000 * mib, maxBytes: 1.25 * mib },
  ]) {
    await rm(world.path("cache"), { recursive: true, force: true });
    const resolver = world.resolver({ git: { cacheBounds: bounds } });
    await install(resolver, a);
    await install(resolver, b);
    // Long ago, `b` longer ago than `a`.
    for (const [spec, minutes] of [
      [a, 10],
      [b, 20],
    ] as const) {
      const then = new Date(Date.now() - minutes * 60_000);
      await utimes(world.path("cache", "git", String(selfUid), await commitOf(spec)), then, then);
    }
    await install(resolver, c);
    t.deepEqual((await cached(world)).sort(), [await commitOf(a), await commitOf(c)].sort());
    t.true((await resolver.cacheBytes()) <= 1.25 * mib);
    t.is(await resolver.cacheBytes(selfUid), await resolver.cacheBytes());
    t.is(await resolver.cacheBytes(4_000_000), 0);
    // Entries in use are retained, even above the limits.
    await using held = await resolver.resolve({ spec: d }, selfUid);
    await install(resolver, b);
    t.true((await cached(world)).includes(await commitOf(d)));
    t.is(held.manifest.id, "d");
  }
});

test("a fetched repository that is not stored, or is not a package, leaves nothing", async (t) => {
  await using world = await World.create();
  const repository = await TestRepository.create(world.path("hello"));
  await repository.commit({ "svc.yaml": minimalManifest("hello", "1") });
  const resolver = world.resolver();
  {
    await using one = await resolver.resolve({ spec: repository.fileUrl }, selfUid);
    await using other = await resolver.resolve({ spec: repository.fileUrl }, selfUid);
    t.is(one.manifest.id, other.manifest.id);
    t.is((await cached(world)).length, 1);
  }
  t.is((await cached(world)).length, 0);
  await install(resolver, repository.fileUrl);
  await resolver.resolve({ spec: repository.fileUrl }, selfUid).then((again) => again[Symbol.asyncDispose]());
  t.is((await cached(world)).length, 1, "retained commits stay");

  await repository.commit({ "svc.yaml": "id: 7\n" });
  await t.throwsAsync(resolver.resolve({ spec: repository.fileUrl }, selfUid), {
    instanceOf: SvcError,
  });
  t.is((await cached(world)).length, 1);
});

test("an earlier version's cache by URL is removed", async (t) => {
  await using world = await World.create();
  const old = world.path("cache", "git", "ab".repeat(32), `${"0".repeat(40)}.git`);
  await mkdir(old, { recursive: true });
  const repository = await TestRepository.create(world.path("hello"));
  await repository.commit({ "svc.yaml": minimalManifest("hello", "1") });
  await install(world.resolver(), repository.fileUrl);
  t.deepEqual(await readdir(join(world.path("cache"), "git")), [String(selfUid)]);
});
