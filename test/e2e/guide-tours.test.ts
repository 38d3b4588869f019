/** The commands of the README and of the guides, as a new user would type them. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { appendFile, cp, mkdir, readFile, rm, writeFile, symlink } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { createHelloRepository } from "../../examples/try/hello-repository.ts";
import { hasAge, newAgeKey } from "../support/age.ts";
import { startDaemon, type TestDaemon, isRoot } from "../support/daemon.ts";
import { readSection, typedLines } from "../support/docs.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { hasS3Server, startS3Server } from "../support/s3-server.ts";
import { main } from "../support/svc-main.ts";
import { SystemdMachine, whyNoSystemd } from "../support/systemd.ts";
import { linesAbout, typeLine } from "./support/terminal-lines.ts";

// The commands of the guides, as a new user would type them.

// The commands of the guide about backups, as a new user would type them.

const root = fileURLToPath(new URL("../..", import.meta.url));

async function backupLines(): Promise<string[]> {
  const lines = typedLines(await readSection("docs/schedules-and-backups.md", "Backups"));
  return lines.filter((line) => line.startsWith("svc "));
}

interface Ended {
  code: number;
  out: string;
  err: string;
}

/** In a shell in the daemon's directory. Questions are confirmed. */
function typeInDaemon(daemon: TestDaemon, line: string): Promise<Ended> {
  const asks = /^svc (?:backup restore|remove) /.test(line) ? " --yes" : "";
  const script = `svc() { "${process.execPath}" "${main}" "$@" --socket "${daemon.socketPath}"; }\n`;
  return new Promise((resolve) => {
    const options = { cwd: daemon.dir, env: { PATH: process.env["PATH"] ?? "", HOME: daemon.dir } };
    const command = line.replace(/^(svc [^<>]*)/, (_, words: string) => `${words.trimEnd()}${asks} `);
    execFile("sh", ["-c", script + command], options, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}

/** Acts like a calendar client of Ada, who is in the guide. */
function calendar(port: number, method: string, path: string, body?: string): Promise<Response> {
  const headers = { authorization: `Basic ${Buffer.from("ada:secret").toString("base64")}` };
  return fetch(`http://127.0.0.1:${port}/ada/${path}`, { method, headers, ...(body && { body }) });
}

const meeting = `BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//svc//test//EN
BEGIN:VEVENT
UID:standup
DTSTAMP:20260105T080000Z
DTSTART:20260105T090000Z
SUMMARY:Stand-up
END:VEVENT
END:VCALENDAR
`.replaceAll("\n", "\r\n");

/** A faulty version that starts successfully. */
const spoiling = `
import { writeFileSync } from "node:fs";
writeFileSync(process.env.SVC_DATA_DIR + "/notes.txt", "eaten");
`;

test("the guide's tour of backups works as written", async (t) => {
  await using stack = new AsyncDisposableStack();
  const server = hasS3Server ? stack.use(await startS3Server()) : undefined;
  await using daemon = await startDaemon();
  const apps = daemon.client(AppService);
  // A separate package: it gets a faulty version.
  const spec = join(daemon.dir, "hello");
  await cp(join(root, "examples/hello"), spec, { recursive: true });
  const { directory, version } = await apps.installApp({ spec, settings: { port: await freePort() } });
  const notes = join(directory, "data/notes.txt");
  await writeFile(notes, "remember the milk\n");
  await mkdir(join(daemon.dir, "disk"), { mode: 0o700 });
  await mkdir(join(daemon.dir, "vault"), { mode: 0o700 });
  await writeFile(join(daemon.dir, "secret"), `${server?.secretKey ?? ""}\n`);
  if (hasAge) await newAgeKey(daemon.dir, "key.txt");
  await apps.startApp({ id: "hello" });

  const lines = await backupLines();
  assert.ok(lines.length > 15, "the section has its lines");
  const calendarPort = await freePort();
  let hasCalendar = server !== undefined;
  for (const line of lines) {
    const needsServer = /\bfar\b/.test(line);
    if (needsServer && server === undefined) {
      t.log(`skipped without an S3 server: ${line}`);
      continue;
    }
    if (/\bradicale\b/.test(line) && !hasCalendar) {
      t.log(`skipped without Radicale or an S3 server: ${line}`);
      continue;
    }
    if (/\bvault\b/.test(line) && !hasAge) {
      t.log(`skipped without age: ${line}`);
      continue;
    }
    if (line.includes("--paths data/notes.txt")) await rm(notes);
    if (line.startsWith("svc upgrade")) {
      await apps.stopApp({ id: "hello" });
      const manifest = await readFile(join(spec, "svc.yaml"), "utf8");
      await writeFile(join(spec, "svc.yaml"), manifest.replace(/^version: .*$/m, 'version: "9.0.0"'));
      await appendFile(join(spec, "server.mjs"), spoiling);
    }
    const real = line
      .replace("/mnt/disk/backups", join(daemon.dir, "disk"))
      .replace("/mnt/disk/vault", join(daemon.dir, "vault"))
      .replace("https://s3.example.org", server?.endpoint ?? "")
      .replace("--access-key ID", `--access-key ${server?.accessKey ?? ""}`)
      .replace("svc install radicale", `svc install radicale --set port=${calendarPort}`);
    if (line.startsWith("svc backup create radicale")) {
      t.is((await calendar(calendarPort, "MKCALENDAR", "work/")).status, 201);
      t.is((await calendar(calendarPort, "PUT", "work/standup.ics", meeting)).status, 201);
    }
    if (line.startsWith("svc backup restore radicale")) {
      t.is((await calendar(calendarPort, "DELETE", "work/")).status, 200);
      t.is((await calendar(calendarPort, "GET", "work/standup.ics")).status, 404);
    }
    const { code, out, err } = await typeInDaemon(daemon, real);
    if (code !== 0 && line.startsWith("svc install radicale") && err.includes("pip")) {
      t.log(`Radicale cannot be installed here: ${err}`);
      hasCalendar = false;
      continue;
    }
    t.is(code, 0, `${line}: ${err}${out}`);
    if (line.includes("radicale")) {
      if (!line.includes("restore ")) continue;
      const back = await eventually(() => calendar(calendarPort, "GET", "work/standup.ics"), 60_000);
      t.is(back.status, 200);
      t.regex(await back.text(), /SUMMARY:Stand-up/);
      await apps.stopApp({ id: "radicale" });
      continue;
    }
    if (line.startsWith("svc upgrade")) {
      await apps.startApp({ id: "hello" });
      t.is((await apps.getApp({ id: "hello" })).version, "9.0.0");
      await eventually(async () => assert.equal(await readFile(notes, "utf8"), "eaten"));
    }
    if (line.includes(" get ")) t.is(out, "remember the milk\n");
    if (line.includes("restore ")) {
      t.is(await readFile(notes, "utf8"), "remember the milk\n", line);
      t.is((await apps.getApp({ id: "hello" })).version, version, line);
    }
    if (line.includes("storage test")) t.is(out, "list: works\nwrite: works\nread: works\ndelete: works\n");
    if (line.includes(" upload ")) t.regex(out, /^Uploaded \S+ of hello to disk\n$/);
  }
});

// The commands of the guide about terminals, as a new user would type them.

test("the guide's commands for terminals work as written", async (t) => {
  await using daemon = await startDaemon();
  const hello = fileURLToPath(new URL("../../examples/hello", import.meta.url));
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: hello, settings: { port: await freePort() } });
  await apps.startApp({ id: "hello" });
  for (const line of await linesAbout("hello", 4)) {
    const typed = typeLine(daemon, line);
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    // Nothing is typed there: it exits by itself.
    if (line.startsWith("svc app attach")) t.regex(typed.shown(), /Welcome to Node\.js/);
    if (line.startsWith("echo ls")) t.regex(typed.shown(), /^svc\.yaml$/m);
  }
});

// The commands of the guide about files, as a new user who is not root would type them.

const rootTest = isRoot ? test : test.skip;
/** `games`, an account that every Debian has. */
const uid = 5;

async function fileLines(): Promise<string[]> {
  return typedLines(await readSection("docs/try.md", "Files"));
}

/** In a shell, with a user's socket, in a local directory. Questions are confirmed. */
function typeAsUser(
  dir: string,
  socketPath: string,
  line: string,
): Promise<{ code: number; out: string; err: string }> {
  const svc = `svc() { "${process.execPath}" "${main}" "$@" --socket "${socketPath}"; }\n`;
  const command = line.replace(/^svc file rm /, "$&--yes ").replace(".svc/svc.sock", socketPath);
  return new Promise((resolve) => {
    const options = { cwd: dir, env: { PATH: process.env["PATH"] ?? "", HOME: dir } };
    execFile("sh", ["-c", svc + command], options, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}

rootTest("the guide's tour of files works as written", async (t) => {
  await using daemon = await startDaemon();
  await using connection = await daemon.as(uid);
  const apps = connection.client(AppService);
  const files = connection.client(FileService);
  const { directory } = await apps.installApp({ spec: "hello", settings: { port: await freePort() } });
  const notes = join(directory, "data/notes.txt");
  await writeFile(join(daemon.dir, "notes.txt"), "todo: remember the milk\n");

  const lines = await fileLines();
  assert.ok(lines.length > 13, "the section has its lines");
  for (const line of lines) {
    const { etag = "" } = line.includes("ETAG") ? await files.statPath({ path: notes }) : {};
    // Nothing interrupts it here.
    const real = line.replace("ETAG", etag).replace("/PATH/notes.txt", notes).replace("tail -f", "tail");
    if (line.includes("ETAG")) await writeFile(join(daemon.dir, "notes.txt"), `todo: ${etag}\n`);
    const { code, out, err } = await typeAsUser(daemon.dir, connection.socketPath, real);
    if (line.includes("/etc/shadow")) {
      t.is(code, 4, err);
      t.regex(err, /"\/etc\/shadow": permission denied/);
      continue;
    }
    t.is(code, 0, `${real}: ${err}${out}`);
    if (line.includes("ETAG")) t.is(await readFile(notes, "utf8"), `todo: ${etag}\n`, real);
    if (line.startsWith("curl")) {
      t.regex(out, /"name":"notes\.txt"/);
      // A previously read version does not overwrite a newer one.
      t.regex((await typeAsUser(daemon.dir, connection.socketPath, real)).out, /"reason":"changed"/);
    }
    if (line.includes(" untar ")) {
      t.is(await readFile(join(directory, "data/copy/notes.txt"), "utf8"), await readFile(notes, "utf8"));
    }
    if (line.includes(" grep ")) t.regex(out, /\/data\/notes\.txt:1:todo: /);
    if (line.includes(" find ")) t.regex(out, /\/data\/notes\.txt\n/);
    if (line.includes(" tail ")) t.regex(out, /^todo: /);
    if (line.includes(" du ")) t.regex(out, /\/hello\/data\n$/);
  }
});

// The commands of the guide about scheduled jobs, as a new user would type them, and their output.

interface Step {
  readonly line: string;
  /** The output shown below it. */
  readonly shown: string;
}

async function scheduleSteps(): Promise<Step[]> {
  const section = await readSection("docs/schedules-and-backups.md", "Scheduled jobs");
  return [...section.matchAll(/^```console\n(.*?)^```/gms)].flatMap(([, block = ""]) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((part) => ({
        line: part.slice(0, part.indexOf("\n")),
        shown: part.slice(part.indexOf("\n") + 1),
      })),
  );
}

/** In a shell, with both outputs in their order. */
function typeScript(dir: string, socketPath: string, script: string): Promise<string> {
  const svc = `svc() { "${process.execPath}" "${main}" "$@" --socket "${socketPath}"; }\n`;
  return new Promise((resolve) => {
    execFile("sh", ["-c", `exec 2>&1\n${svc}${script}`], { cwd: dir }, (_, output) => resolve(output));
  });
}

/** Times and column widths vary. */
function steady(text: string): string {
  return text
    .replaceAll(/\bin \d+\w(?: \d+\w)?/g, "in TIME")
    .replaceAll(/\b(?:now|\d+\w ago)\b/g, "THEN")
    .replaceAll(/\b\d\.\ds\b/g, "LONG")
    .replaceAll(/\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d/g, "DATE")
    .replaceAll(/ +/g, " ")
    .replaceAll(/ $/gm, "");
}

test("the guide's tour of scheduled jobs has the documented output", async (t) => {
  t.timeout(3 * 60_000);
  await using daemon = await startDaemon();
  await mkdir(join(daemon.dir, ".svc"), { recursive: true });
  await symlink(daemon.socketPath, join(daemon.dir, ".svc/svc.sock"));
  // So that it does not fire during the test.
  const distant = `0 ${(new Date().getHours() + 12) % 24} * * *`;
  let functions = "";
  const tour = await scheduleSteps();
  t.true(tour.length >= 13, "the section contains commands");
  for (const { line, shown } of tour) {
    if (line.startsWith("cat ")) await writeFile(join(daemon.dir, line.slice("cat ".length)), shown);
    const isFunction = /^\w+\(\) /.test(line);
    if (isFunction) functions += `${line}\n`;
    const typed = isFunction ? "" : line.replace("*/5 * * * *", distant);
    const output = steady(await typeScript(daemon.dir, daemon.socketPath, `${functions}${typed}`));
    const wanted = steady(shown.replaceAll("*/5 * * * *", distant));
    if (!line.startsWith("svc schedule next")) t.is(output.trimEnd(), wanted.trimEnd(), line);
    else {
      // The years, and whether the clock changes in them, vary.
      const shape = (each: string): string[] =>
        each.split("\n").map((row) => row.replace(/^\d{4}-.*/, "a time"));
      t.deepEqual(shape(output), shape(wanted), line);
      t.regex(output, /^\d{4}-03-28T0[23]:[03]0:00\+02:00 in TIME/m);
    }
  }
});

// The commands of the guide about services, as root would type them on a host with systemd.

const reason = whyNoSystemd === undefined ? "" : ` (skipped: ${whyNoSystemd})`;
const deadlineMs = 60_000;

async function serviceLines(): Promise<string[]> {
  return typedLines(await readSection("docs/packages.md", "Services"));
}

(whyNoSystemd === undefined ? test : test.skip)(
  `the guide's tour of services works as it is written${reason}`,
  async (t) => {
    t.timeout(5 * 60_000);
    await using machine = await SystemdMachine.withSvc();
    await machine.boot();
    const apps = machine.client(AppService);
    await eventually(() => apps.listApps({}), deadlineMs);
    // In the machine's persistent directory. Questions are confirmed.
    const type = (line: string): Promise<string> => {
      const svc = `svc() { "${process.execPath}" "${main}" "$@"; }; cd /etc/svc;`;
      const command = line.replaceAll("sudo ", "").replace("svc remove", "svc remove --yes");
      return machine.run("sh", "-c", `${svc} ${command}`);
    };

    const lines = await serviceLines();
    assert.ok(lines.length > 10, "the section has its lines");
    let restarts = 0;
    for (const line of lines) {
      const out = await type(line);
      if (line.includes("systemctl status")) t.regex(out, /svc-beat\.service[^]*Active: active \(running\)/);
      if (line.includes("systemctl kill")) {
        await eventually(async () => {
          const { state, restarts: now } = await apps.getApp({ id: "beat" });
          assert.equal(state, "RUNNING");
          assert.equal(now, 1);
        }, deadlineMs);
        restarts++;
      }
      if (line.includes("svc info")) t.regex(out, /beat/);
      if (line.includes("svc logs")) t.regex(out, /^.*beat$/m);
      if (line.includes("upgrade")) {
        await eventually(async () => assert.match(await type("svc logs beat"), /louder/), deadlineMs);
      }
    }
    t.is(restarts, 1);
    t.deepEqual((await apps.listApps({})).apps, []);
    t.notRegex(await machine.systemctl("list-units", "--all", "svc-*"), /svc-beat/);
  },
);

// The README's first tour, as a new user would type it: each command and its output.

const examples = fileURLToPath(new URL("../../examples", import.meta.url));

async function steps(): Promise<Step[]> {
  const [, block = ""] = /^```console\n(.*?)^```/ms.exec(await readSection("README.md", "Try it")) ?? [];
  return block
    .split(/^\$ /m)
    .slice(1)
    .map((part) => ({ line: part.slice(0, part.indexOf("\n")), shown: part.slice(part.indexOf("\n") + 1) }));
}

/** In a shell, with both outputs in their order. */
function type(dir: string, socketPath: string, line: string): Promise<string> {
  const npm = `npm() { shift 4; "${process.execPath}" "${main}" --socket "${socketPath}" "$@"; }\n`;
  const command = line.startsWith("curl ") ? line.replace("curl ", "curl --silent ") : line;
  return new Promise((resolve) => {
    execFile("sh", ["-c", `exec 2>&1\n${npm}${command}`], { cwd: dir }, (_, output) => resolve(output));
  });
}

/** Sizes, times and column widths vary; a terminal shows progress in one line and removes it. */
function steadySizes(text: string): string {
  return text
    .replaceAll(/\d+(?:\.\d+)? (?:B|KiB|MiB)\b/g, "SIZE")
    .replaceAll(/\b(?:\d+m )?\d+[sm]$/gm, "TIME")
    .replaceAll(/ +/g, " ")
    .replaceAll(/^\w+ \S+: \w+ · .*\n/gm, "");
}

/** Types every command of the tour in a new directory, and compares the output. */
async function takeTour(t: ExecutionContext): Promise<void> {
  await using daemon = await startDaemon();
  await mkdir(join(daemon.dir, ".svc"));
  await createHelloRepository(examples, join(daemon.dir, ".svc/hello.git"));
  const apps = daemon.client(AppService);
  const portOf = async (id: string): Promise<string> =>
    String((await apps.listAppPorts({ id }).catch(() => undefined))?.ports[0]?.port);
  const tour = await steps();
  t.true(tour.length >= 12, "the section contains commands");
  let port = "8080";
  for (const { line, shown } of tour) {
    const output = await type(daemon.dir, daemon.socketPath, line);
    port = line.includes("rm hello") ? port : await portOf("hello");
    const copy = await portOf("hello-2");
    // The default in the settings is unchanged.
    const wanted = shown.replaceAll(/\b(8080|8081)\b(?! +TCP)/g, (shownPort) =>
      shownPort === "8080" ? port : copy,
    );
    t.is(steadySizes(output), steadySizes(wanted), line);
  }
  t.deepEqual(
    (await apps.listApps({})).apps.map(({ id }) => id),
    ["hello-2"],
  );
  await apps.removeApp({ id: "hello-2" });
}

test.serial("the README's tour has the documented output while another process uses its port", async (t) => {
  t.timeout(3 * 60_000);
  const other = createServer().listen(8080, "127.0.0.1").unref();
  // If the port is already in use, that is sufficient.
  await once(other, "listening").catch(() => undefined);
  await takeTour(t);
  other.close();
});

test.serial("two users follow the README's tour at the same time", async (t) => {
  t.timeout(6 * 60_000);
  await Promise.all([takeTour(t), takeTour(t)]);
});
