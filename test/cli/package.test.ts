/** `svc package …`, and `svc install` without a manifest: plans, questions and written files. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { lchownSync, renameSync, symlinkSync } from "node:fs";
import {
  access,
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import test, { type ExecutionContext } from "ava";
import { isRoot } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc, type SvcRun } from "./support/run-svc.ts";

const uid = process.getuid?.() ?? 0;

async function directory(t: ExecutionContext, files: Readonly<Record<string, string>> = {}): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-own-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  return dir;
}

const svc = (...args: string[]): Promise<SvcRun> => runSvc(args, { host: { uid } });

/** Runs svc with a user at a terminal who answers the question. */
function answering(answer: string, ...args: string[]): Promise<SvcRun> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  stdin.write(`${answer}\n`);
  return runSvc(args, { host: { uid, stdin }, terminal: true });
}

test("suggested commands are quoted for the shell", async (t) => {
  const dir = join(await directory(t), "Ada's first");
  const quoted = `'${dir.replace("'", String.raw`'\''`)}'`;
  const begun = await svc("package", "init", dir, "--template", "node", "--yes", "--id", "first");
  t.true(begun.stderr.endsWith(`Try it: svc package run ${quoted}\n`), begun.stderr);
  const checked = await svc("package", "check", dir);
  t.true(checked.stderr.endsWith(`svc install ${quoted}\n`), checked.stderr);
});

test("init creates a package that passes check", async (t) => {
  const dir = join(await directory(t), "fresh");
  const begun = await svc("package", "init", dir, "--template", "node", "--yes");
  t.is(begun.exitCode, 0, begun.stderr);
  t.is(begun.stdout, "", "no advice");
  t.regex(begun.stderr, /Try it: svc package run/);
  t.deepEqual((await readdir(dir)).sort(), ["package.json", "server.js", "svc.yaml"]);
  const checked = await svc("package", "check", dir);
  t.is(checked.exitCode, 0);
  t.regex(checked.stderr, /fresh 1\.0\.0 can be installed/);
  const again = await svc("package", "init", dir);
  t.is(again.exitCode, 2);
  t.true(
    again.stderr.endsWith(`/svc.yaml already exists; check it: svc package check ${dir}\n`),
    again.stderr,
  );
  const unmade = await svc("package", "init", `${dir}-too`, "--yes");
  t.is(unmade.exitCode, 2);
  t.regex(
    unmade.stderr,
    /^svc: (\S+-too) does not exist; to start a package there: svc package init \1 --template node\|[a-z|]+\n$/,
  );
  const nowhere = await svc("package", "check", `${dir}-too`);
  t.deepEqual([nowhere.exitCode, nowhere.stdout], [2, ""]);
  t.regex(nowhere.stderr, /^svc: \/.*fresh-too does not exist\n$/);
});

(isRoot ? test : test.skip)(
  `check works at a low CPU priority${isRoot ? "" : " (skipped: needs root)"}`,
  async (t) => {
    const dir = await directory(t, {
      "svc.yaml":
        'id: a\nname: A\nversion: "1"\nprocess: { exec: [x] }\nsettings: { properties: { greeting: { type: string, env: HELLO } } }\n',
    });
    await chmod(dir, 0o755);
    const nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "nice", "-n", "15"];
    const check = spawn("setpriv", [...nobody, process.execPath, main, "package", "check", dir]);
    const [said, [exitCode]] = await Promise.all([
      text(check.stderr),
      once(check, "exit") as Promise<[number]>,
    ]);
    t.is(exitCode, 0, said);
    t.regex(said, /a 1 can be installed/);
  },
);

test("check reports who may install a package that requires permissions", async (t) => {
  const manifest = 'id: a\nname: A\nversion: "1"\ndocker: { image: "x/y:1" }\npermissions: [host_network]\n';
  const dir = await directory(t, { "svc.yaml": manifest });
  const said = async (who: number): Promise<string> =>
    (await runSvc(["package", "check", dir], { host: { uid: who } })).stderr;
  t.regex(await said(1000), /installed only by root, because it requires host_network: sudo svc install \//);
  if (uid === 0) t.regex(await said(0), /can be installed: svc install \//);
});

test("check prints file, line and problem, and exits with 1", async (t) => {
  const dir = await directory(t, { "svc.yaml": 'id: a\nname: A\nversion: "1"\nports: []\n' });
  const { exitCode, stdout } = await svc("package", "check", dir);
  t.is(exitCode, 1);
  t.regex(stdout, /^svc\.yaml:1: one of the keys process, docker, compose, service is required/);
  const json = await svc("package", "check", dir, "--json");
  t.is(json.exitCode, 1);
  t.like((JSON.parse(json.stdout) as { problems: unknown[] }).problems[0], { file: "svc.yaml", line: 1 });
});

test("nothing is written before the user agrees to the shown plan", async (t) => {
  const dir = await directory(t, { Procfile: "web: node server.js\n", "server.js": "" });
  const path = join(dir, "svc.yaml");
  for (const line of [
    ["package", "init", dir],
    ["install", dir],
  ]) {
    const nobody = await svc(...line);
    t.is(nobody.exitCode, 2, nobody.stderr);
    t.regex(nobody.stderr, /exec: \[node, server\.js\][^]*this writes \S+svc\.yaml; pass --yes to confirm/);
    const no = await answering("n", ...line);
    t.not(no.exitCode, 0);
    await t.throwsAsync(access(path));
  }
  const yes = await answering("y", "package", "init", dir);
  t.is(yes.exitCode, 0, yes.stderr);
  t.regex(await readFile(path, "utf8"), /exec: \[node, server\.js\]/);
});

test("a dry run of an install shows the manifest and writes nothing, then checks the written one", async (t) => {
  const dir = await directory(t, { Procfile: "web: node server.js\n", "server.js": "" });
  const planned = await svc("install", dir, "--dry-run");
  t.is(planned.exitCode, 0, planned.stderr);
  t.regex(planned.stderr, /svc generates \S+\/svc\.yaml from Procfile:[^]*exec: \[node, server\.js\]/);
  await t.throwsAsync(access(join(dir, "svc.yaml")));
  t.is((await svc("package", "init", dir, "--yes")).exitCode, 0);
  const checked = await svc("install", dir, "--dry-run");
  t.is(checked.exitCode, 0, checked.stderr);
  t.regex(checked.stderr, /can be installed: svc install /);
});

test("a template is shown before it is written, and overwrites nothing", async (t) => {
  const dir = await directory(t);
  const line = ["package", "init", dir, "--template", "node"];
  const nobody = await svc(...line);
  t.is(nobody.exitCode, 2);
  t.regex(
    nobody.stderr,
    /server\.js would be written\n[^]*exec: \[node, server\.js\][^]*this writes \S+svc\.yaml; pass --yes to confirm/,
  );
  t.not((await answering("n", ...line)).exitCode, 0);
  t.deepEqual(await readdir(dir), []);
  // Another user's file stays unchanged, and nothing is written next to it.
  await writeFile(join(dir, "server.js"), "mine");
  const other = await svc(...line, "--yes");
  t.is(other.exitCode, 2);
  t.regex(other.stderr, /server\.js already exists with other content/);
  t.deepEqual(await readdir(dir), ["server.js"]);
  await rm(join(dir, "server.js"));
  t.is((await answering("y", ...line)).exitCode, 0);
  const written = await readFile(join(dir, "server.js"), "utf8");
  // The state after an interruption.
  await rm(join(dir, "svc.yaml"));
  await rm(join(dir, "package.json"));
  const again = await svc(...line, "--yes");
  t.is(again.exitCode, 0, again.stderr);
  t.is(await readFile(join(dir, "server.js"), "utf8"), written);
  t.deepEqual((await readdir(dir)).sort(), ["package.json", "server.js", "svc.yaml"]);
});

test("init fails if the written manifest has problems", async (t) => {
  for (const json of [[], ["--json"]]) {
    const dir = await directory(t, { Procfile: "web: node missing.js\n" });
    const { exitCode, stdout, stderr } = await svc("package", "init", dir, "--yes", ...json);
    t.is(exitCode, 1);
    if (json.length === 0) t.regex(stderr, /\nWrote .*svc\.yaml\. Fix before installing:\n$/);
    t.regex(stdout, /there is no file .{1,2}missing\.js/);
  }
});

test("a compose file is installed with its directory", async (t) => {
  const dir = await directory(t, { "stack.yml": "services: { a: { image: 'x/y:1' } }\n" });
  const { exitCode, stderr } = await svc(
    "install",
    join(dir, "stack.yml"),
    "--yes",
    "--socket",
    "/nonexistent",
  );
  // The manifest is written by then; there is no daemon.
  t.is(exitCode, 6, stderr);
  t.regex(await readFile(join(dir, "svc.yaml"), "utf8"), /compose:\n {2}file: stack\.yml/);
  // The manifest now takes precedence, and a note says so.
  const again = await svc("install", join(dir, "stack.yml"), "--socket", "/nonexistent");
  t.regex(again.stderr, /note: using .*svc\.yaml; to generate it again from stack\.yml, delete it/);
});

test("schema prints a JSON Schema", async (t) => {
  const { stdout } = await svc("package", "schema");
  t.is((JSON.parse(stdout) as { title: string }).title, "svc.yaml");
});

test("source check reports problems of the packages next to an index", async (t) => {
  const dir = await directory(t, { "index.yaml": "packages: { a: { directory: a } }\n" });
  const { exitCode, stdout } = await svc("source", "check", dir);
  t.is(exitCode, 1);
  t.regex(stdout, /^index\.yaml:1: a: there is no directory "a"/);
});

(uid === 0 ? test : test.skip)("root does not work in another user's directory", async (t) => {
  const dir = await directory(t, { Procfile: "web: node a.js\n" });
  await chown(dir, 65_534, 65_534);
  for (const verb of ["init", "check", "run"]) {
    const { exitCode, stderr } = await svc("package", verb, dir);
    t.is(exitCode, 2, verb);
    t.regex(stderr, /belongs to another user: run the command as that user/);
  }
  // Also not below it, or through a link of root's own.
  const own = await directory(t);
  await symlink(dir, join(own, "link"));
  // Owned by root, but the parent's owner could replace it.
  await mkdir(join(dir, "of-root"));
  t.teardown(() => rm(join(dir, "of-root"), { recursive: true, force: true }));
  await symlink(join(dir, "of-root"), join(own, "to-root"));
  for (const line of [
    ["package", "init", "--template", "node", "--yes", join(dir, "of-root")],
    ["package", "check", join(own, "to-root")],
    ["source", "check", dir],
    ["package", "init", "--template", "node", "--yes", join(dir, "a/new")],
    ["package", "init", "--template", "node", "--yes", join(own, "link")],
    ["package", "check", join(own, "link")],
  ]) {
    const { exitCode, stderr } = await svc(...line);
    t.is(exitCode, 2, line.join(" "));
    t.regex(stderr, /belongs to another user: run the command as that user/);
  }
  t.deepEqual((await readdir(dir)).sort(), ["Procfile", "of-root"]);
  t.deepEqual(await readdir(join(dir, "of-root")), []);
  const everybodys = await directory(t);
  await chmod(everybodys, 0o777);
  const { exitCode, stderr } = await svc(
    "package",
    "init",
    "--template",
    "node",
    "--yes",
    join(everybodys, "new"),
  );
  t.is(exitCode, 2);
  t.regex(stderr, /is writable by other users: /);
});

(uid === 0 ? test : test.skip)("root does not write to a group-writable directory", async (t) => {
  const dir = await directory(t, { Procfile: "web: node a.js\n" });
  await chown(dir, 0, 65_534);
  await chmod(dir, 0o775);
  const rejected = await svc("package", "init", dir, "--yes");
  t.is(rejected.exitCode, 2);
  t.regex(rejected.stderr, /is writable by other users: use a directory that only root can write to/);
  t.deepEqual(await readdir(dir), ["Procfile"]);
  await chown(dir, 0, 0);
  await svc("package", "init", dir, "--yes");
  t.true((await readdir(dir)).includes("svc.yaml"), "root's group may");
});

(uid === 0 ? test : test.skip)(
  "root follows no link that replaces a directory during the question",
  async (t) => {
    const dir = await directory(t, { Procfile: "web: node a.js\n" });
    const target = await directory(t);
    const stdin = Object.assign(new PassThrough(), { isTTY: true });
    const replaceOnQuestion = (question: string): void => {
      if (!question.startsWith("Write ")) return;
      renameSync(dir, `${dir}.moved`);
      symlinkSync(target, dir);
      lchownSync(dir, 65_534, 65_534);
      stdin.write("y\n");
    };
    const stderr = new Writable({
      write(chunk, _encoding, done) {
        replaceOnQuestion(String(chunk));
        done();
      },
    });
    t.teardown(() => rm(`${dir}.moved`, { recursive: true }));
    const host = { uid, stdin, stderr: Object.assign(stderr, { isTTY: true, columns: 80 }) };
    const { exitCode } = await runSvc(["package", "init", dir], { host, terminal: true });
    t.is(exitCode, 2);
    t.deepEqual(await readdir(target), []);
  },
);

test("an export is written completely or not at all, and not by root to another user's directory", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "shop" })]);
  const exportTo = (dir: string) =>
    svc("app", "export", "shop", "--to", "kubernetes", "--output", dir, "--socket", daemon.socketPath);
  const dir = await directory(t);
  const fresh = join(dir, "a/b");
  const written = await exportTo(fresh);
  t.is(written.exitCode, 0, written.stderr);
  t.deepEqual((await readdir(fresh)).sort(), ["more.yaml", "shop.yaml"]);
  await rm(join(fresh, "shop.yaml"));
  const again = await exportTo(fresh);
  t.is(again.exitCode, 2);
  t.regex(again.stderr, /more\.yaml already exists/);
  t.deepEqual(await readdir(fresh), ["more.yaml"]);
  if (uid !== 0) return;
  const { lchown } = await import("node:fs/promises");
  const link = join(dir, "link");
  await symlink(await directory(t), link);
  await lchown(link, 65_534, 65_534);
  for (const path of [link, join(link, "new")]) {
    const { exitCode, stderr } = await exportTo(path);
    t.is(exitCode, 2, path);
    t.regex(stderr, /belongs to another user: run the command as that user/);
  }
});

test("Ctrl-C during a build leaves nothing behind", async (t) => {
  t.timeout(180_000);
  const dir = await directory(t);
  const [own, scratch] = [join(dir, "own"), join(dir, "tmp")];
  for (const path of [own, scratch]) await mkdir(path);
  const build = "echo $$ > building; exec sleep 600";
  await writeFile(
    join(own, "svc.yaml"),
    `id: a\nname: A\nversion: "1"\nprocess:\n  build: [{ exec: [sh, -c, "${build}"] }]\n  exec: [sleep, "1"]\n`,
  );
  const child = spawn(process.execPath, [main, "package", "run", own], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, TMPDIR: scratch },
  });
  t.teardown(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const pid = await eventually(async () => {
    const file = (await readdir(scratch, { recursive: true })).find((name) => name.endsWith("/building"));
    const number = Number(await readFile(join(scratch, file ?? ""), "utf8"));
    assert.ok(number > 0, stderr);
    return number;
  }, 60_000);
  child.kill("SIGINT");
  const [exitCode] = (await ended) as [number | null];
  t.is(exitCode, 0, stderr);
  await eventually(() => {
    assert.throws(() => process.kill(pid, 0), { code: "ESRCH" }, stderr);
  });
  t.deepEqual(await readdir(scratch), []);
});

test("run builds and runs a package with its log, and Ctrl-C leaves nothing behind", async (t) => {
  t.timeout(180_000);
  const dir = await directory(t);
  const scratch = join(dir, "tmp");
  await mkdir(scratch);
  const files = { "package.json": '{"scripts":{"start":"node server.js"}}', "server.js": program };
  await mkdir(join(dir, "own"));
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, "own", name), text);
  const init = await svc("package", "init", join(dir, "own"), "--yes");
  t.is(init.exitCode, 0, init.stderr);
  const child = spawn(process.execPath, [main, "package", "run", join(dir, "own")], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TMPDIR: scratch },
  });
  t.teardown(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  await eventually(() => assert.match(stdout, /pid (\d+) listens/, `${stdout}\n${stderr}`), 60_000);
  const pid = Number(/pid (\d+) listens/.exec(stdout)?.[1]);
  // As npm forwards it.
  child.kill("SIGINT");
  setTimeout(() => child.kill("SIGINT"), 50);
  const [exitCode] = (await ended) as [number | null];
  t.is(exitCode, 0, stderr);
  t.regex(stderr, /\nStopping, and removing the app\.\n$/);
  t.throws(() => process.kill(pid, 0), { code: "ESRCH" });
  t.deepEqual(await readdir(scratch), []);
});

const program = `
import { createServer } from "node:http";
createServer().listen(Number(process.env.PORT), "127.0.0.1", () => console.log("pid " + process.pid + " listens"));
`;
