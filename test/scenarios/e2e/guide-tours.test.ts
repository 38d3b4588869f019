/**
 * The commands of the guides, as a new user would type them. The commands of docs/tutorials, as a reader types
 * them. The commands of docs/how-to, the cheat sheet and the page about problems, as a reader types them.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { appendFile, cp, mkdir, readFile, rm, symlink, writeFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { linesAbout, typeLine } from "../../e2e/support/terminal-lines.ts";
import { hasAge, newAgeKey } from "../../support/age.ts";
import { type TestDaemon, isRoot, startDaemon } from "../../support/daemon.ts";
import { readSection, typedLines, readPage } from "../../support/docs.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort } from "../../support/packages.ts";
import { hasS3Server, startS3Server, needsS3Server } from "../../support/s3-server.ts";
import { main } from "../../support/svc-main.ts";
import { SystemdMachine, whyNoSystemd } from "../../support/systemd.ts";
import { commandsOf, follow, readerOn, marksOf, type Reader } from "../../e2e/support/guide-reader.ts";
import { createHelloRepository } from "../../../examples/try/hello-repository.ts";
import { ScheduleService } from "../../../gen/svc/v1/schedule_pb.ts";

// The commands of the guide about backups, as a new user would type them.

const root = fileURLToPath(new URL("../../..", import.meta.url));

async function backupLines(): Promise<string[]> {
  const lines = typedLines(await readSection("docs/jobs-and-backups.md", "Backups"));
  return lines.filter((line) => line.startsWith("svc "));
}

interface Ended {
  code: number;
  out: string;
  err: string;
}

/** Runs a command in a shell in a local directory, in which `svc` calls the daemon of the socket. */
function runInShell(dir: string, socketPath: string, command: string): Promise<Ended> {
  const svc = `svc() { "${process.execPath}" "${main}" "$@" --socket "${socketPath}"; }\n`;
  return new Promise((resolve) => {
    const options = { cwd: dir, env: { PATH: process.env["PATH"] ?? "", HOME: dir } };
    execFile("sh", ["-c", svc + command], options, (error, out, err) => {
      resolve({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}

/** Types a line in the daemon's directory. Questions are confirmed. */
function typeInDaemon(daemon: TestDaemon, line: string): Promise<Ended> {
  const asks = /^svc (?:backup restore|remove) /.test(line) ? " --yes" : "";
  const command = line.replace(/^(svc [^<>]*)/, (_, words: string) => `${words.trimEnd()}${asks} `);
  return runInShell(daemon.dir, daemon.socketPath, command);
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
  const hello = fileURLToPath(new URL("../../../examples/hello", import.meta.url));
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

/** Types a line with a user's socket. Questions are confirmed. */
function typeAsUser(dir: string, socketPath: string, line: string): Promise<Ended> {
  const command = line.replace(/^svc file rm /, "$&--yes ").replace(".svc/svc.sock", socketPath);
  return runInShell(dir, socketPath, command);
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
  const section = await readSection("docs/jobs-and-backups.md", "Scheduled jobs");
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
    const expected = steady(shown.replaceAll("*/5 * * * *", distant));
    if (!line.startsWith("svc schedule next")) t.is(output.trimEnd(), expected.trimEnd(), line);
    else {
      // The years, and whether the clock changes in them, vary.
      const shape = (each: string): string[] =>
        each.split("\n").map((row) => row.replace(/^\d{4}-.*/, "a time"));
      t.deepEqual(shape(output), shape(expected), line);
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

// The commands of docs/tutorials, as a reader types them.

const minute = 60_000;

test("the commands of the tutorial about the first app work", async (t) => {
  t.timeout(5 * minute);
  await using daemon = await startDaemon();
  const outputs = await follow(await readerOn(daemon), "docs/tutorials/first-app.md");
  t.regex(outputs.get("svc ls") ?? "", /^hello +.*RUNNING/m);
  t.regex(outputs.get("svc clone hello") ?? "", /^Cloned hello to hello-2 /m);
});

test("the commands of the tutorial about packages work", async (t) => {
  t.timeout(10 * minute);
  await using daemon = await startDaemon();
  const reader = await readerOn(daemon);
  const answers: string[] = [];
  for (const command of await commandsOf("docs/tutorials/package-your-app.md")) {
    const output = await reader.type(command.replace(/^curl /, "curl -s "));
    if (command.startsWith("curl")) answers.push(output.trim());
    if (command.startsWith("svc package init")) await addSetting(t, join(daemon.dir, "notes/svc.yaml"));
  }
  t.deepEqual(answers, ["Notes 1.0.0", "My notes 1.0.0", "Notes 1.1.0"]);
});

/** Adds the setting that the tutorial describes in words. */
async function addSetting(t: ExecutionContext, file: string): Promise<void> {
  const [, setting = ""] =
    /^```yaml\n(.*?)^```/ms.exec(await readPage("docs/tutorials/package-your-app.md")) ?? [];
  const before = await readFile(file, "utf8");
  const after = before.replace(/^ {2}properties:\n/m, (line) => line + setting);
  t.not(after, before, before);
  await writeFile(file, after);
}

test("the commands of the tutorial about backups work, on two machines", async (t) => {
  t.timeout(10 * minute);
  await using first = await startDaemon();
  await using second = await startDaemon();
  const here = await readerOn(first);
  const there = await readerOn(second);
  const commands = await commandsOf("docs/tutorials/backup-and-restore.md");
  const moved = commands.findIndex((command) => command.startsWith("svc backup upload"));
  t.true(moved > 0);
  for (const command of commands.slice(0, moved)) await here.type(command);
  // Both machines are this one, and the archive has the port.
  await here.type("svc stop hello");
  await there.type(`cp "${first.dir}/hello.tar.zst" .`);
  for (const command of commands.slice(moved)) await there.type(command);
  t.regex(await there.type("svc ls"), /^hello +.*RUNNING/m);
});

// The commands of docs/how-to, the cheat sheet and the page about problems, as a reader types them.

const examples = fileURLToPath(new URL("../../../examples", import.meta.url));

/** Reasons why no test runs a block, by page. */
const notRun: Readonly<Record<string, readonly string[]>> = {
  "change-a-port": ["needs a container engine", "needs a container engine"],
  "export-an-app": ["whoami needs a container engine"],
  "install-an-app": ["needs a container engine"],
  "move-an-app": ["needs ssh to a second machine"],
  "open-a-terminal": ["needs a container engine"],
  "reach-it-from-another-computer": ["needs a second machine"],
  "remove-everything": ["would remove svc from the test machine"],
  "run-on-a-swarm": ["needs a swarm manager"],
  "use-private-git": ["asks for a password at a terminal, and needs a private repository"],
  "use-several-machines": ["needs ssh to a second machine"],
};

/** The page whose test is below, since it needs an S3 server. */
const elsewhere: ReadonlySet<string> = new Set(["back-up-to-s3"]);

interface Guide {
  /** Commands that the reader has run before. */
  readonly prepare?: string;
  readonly programs?: Readonly<Record<string, string>>;
  readonly adapt?: (
    command: string,
    host: Pick<TestDaemon, "dir" | "socketPath"> & { freePort: number },
  ) => string;
  readonly check?: (outputs: ReadonlyMap<string, string>, reader: Reader) => Promise<void> | void;
}

const hello = "svc install hello --start";

/** Pages with commands, except for {@link elsewhere}. */
const guides: Readonly<Record<string, Guide>> = {
  // Another program of this host may use the page's port.
  "change-a-port": {
    prepare: hello,
    adapt: (command, { freePort: port }) => command.replace("8081", String(port)),
  },
  "restore-one-file": {
    prepare: `${hello} && svc file put notes.txt hello:data/notes.txt && svc backup create hello`,
  },
  "manage-files": { prepare: `${hello} && svc file put notes.txt hello:data/app.log` },
  "open-a-terminal": { prepare: hello },
  "find-a-failing-job": {
    prepare: "svc schedule add '0 3 * * *' shell --id nightly --command true && svc schedule run nightly",
    check: async (_, { daemon }) => {
      await eventually(async () => {
        const { runs } = await daemon.client(ScheduleService).listScheduleRuns({ id: "nightly" });
        assert.notEqual(runs[0]?.status, "RUNNING");
      });
    },
  },
  "watch-the-host": {
    prepare: hello,
    adapt: (command, { socketPath }) => command.replace("/run/svc/svc.sock", socketPath),
  },
  "import-a-crontab": {
    programs: { crontab: "echo '0 3 * * * true'" },
    check: (outputs) => assert.match(outputs.get("svc schedule list") ?? "", /0 3 \* \* \* +run "true"/),
  },
  "install-an-app": {
    adapt: (command, { dir }) =>
      command.replace("https://git.example.org/me/app.git", `file://${dir}/hello.git --name app`),
    check: async (_, { type }) => assert.equal((await type("svc ls -q")).trim().split("\n").length, 3),
  },
  "reach-it-from-another-computer": { prepare: hello },
  "remove-everything": {
    prepare: `${hello} && svc backup create hello`,
    check: async (_, { type }) => assert.match(await type("svc ls"), /^No apps are installed/),
  },
  "upgrade-and-roll-back": {
    prepare: 'svc install "file://$HOME/hello.git" --version v1.0.0 --start',
    check: (outputs) =>
      assert.match(outputs.get("svc upgrade hello --version v1.0.0") ?? "", /Switched hello from v1\.1\.0/),
  },
};

async function startReader(daemon: TestDaemon, programs?: Guide["programs"]): Promise<Reader> {
  const reader = await readerOn(daemon, programs);
  await writeFile(join(daemon.dir, "notes.txt"), "todo: water the plants\n");
  await cp(join(examples, "hello"), join(daemon.dir, "my-app"), { recursive: true });
  await createHelloRepository(examples, join(daemon.dir, "hello.git"));
  return reader;
}

for (const [page, { prepare, programs, adapt, check }] of Object.entries(guides)) {
  test(`the commands of docs/how-to/${page}.md work`, async (t) => {
    t.timeout(10 * minute);
    await using daemon = await startDaemon();
    const reader = await startReader(daemon, programs);
    if (prepare !== undefined) await reader.type(prepare);
    const { dir, socketPath } = daemon;
    const host = { dir, socketPath, freePort: await freePort() };
    const outputs = await follow(reader, `docs/how-to/${page}.md`, (line) => adapt?.(line, host) ?? line);
    await check?.(outputs, reader);
    t.pass();
  });
}

(hasS3Server ? test : test.skip)(
  `the commands of docs/how-to/back-up-to-s3.md work${needsS3Server}`,
  async (t) => {
    t.timeout(10 * minute);
    await using server = await startS3Server();
    await using daemon = await startDaemon();
    const reader = await startReader(daemon);
    await reader.type(hello);
    await writeFile(join(daemon.dir, "secret"), `${server.secretKey}\n`);
    const outputs = await follow(reader, "docs/how-to/back-up-to-s3.md", (line) =>
      line
        .replace("https://s3.example.org", server.endpoint)
        .replace("--bucket backups", `--bucket ${server.bucket}`)
        .replace("--access-key ID", `--access-key ${server.accessKey}`),
    );
    t.regex(outputs.get("svc backup ls hello") ?? "", /\bfar\b/);
  },
);

test("the configuration of docs/how-to/get-alerts-by-mail.md is loaded", async (t) => {
  await using daemon = await startDaemon();
  const reader = await startReader(daemon);
  const [, config = ""] =
    /^```toml\n(.*?)^```/ms.exec(await readPage("docs/how-to/get-alerts-by-mail.md")) ?? [];
  await appendFile(daemon.configFile, config);
  t.regex(await reader.type("sudo svc daemon reload"), /alerts/);
});

test("each page of docs/how-to has its commands run, or names the reason in the page", async (t) => {
  for (const file of await readdir(join(examples, "../docs/how-to"))) {
    const page = file.replace(/\.md$/, "");
    const path = `docs/how-to/${file}`;
    t.deepEqual(await marksOf(path), notRun[page] ?? [], page);
    const hasCommands = (await commandsOf(path)).length > 0;
    t.is(hasCommands, page in guides || elsewhere.has(page), page);
  }
});

/** Pages with commands in their text, and the commands that a test cannot run. */
const inText: Readonly<Record<string, { readonly notRun: RegExp; readonly least: number }>> = {
  // Containers, a real crontab line, and placeholders for several commands.
  "docs/cheat-sheet.md": {
    notRun: /repull|logs NAME web|adopt|docker prune|compose\.yaml|…|schedule add|attach/,
    least: 20,
  },
  // The engine, an operation that failed, and a daemon that does not run.
  "docs/troubleshooting.md": { notRun: /docker prune|OPERATION|^svc daemon$|^svc setup$/, least: 12 },
};

for (const [page, { notRun: skipped, least }] of Object.entries(inText)) {
  test(`the commands in the text of ${page} work`, async (t) => {
    t.timeout(10 * minute);
    await using daemon = await startDaemon();
    const reader = await startReader(daemon);
    await reader.type(hello);
    await reader.type("svc schedule add '0 3 * * *' shell --id nightly --command true");
    const text = (await readFile(join(examples, "..", page), "utf8")).replaceAll(/^```.*?^```/gms, "");
    const commands = [...text.matchAll(/`((?:sudo )?svc [^`]+)`/g)].map(([, command = ""]) => command);
    const run = [...new Set(commands)].filter((command) => !skipped.test(command));
    for (const command of run) await reader.type(filledIn(command));
    t.true(run.length >= least, `${run.length} commands`);
  });
}

/** Replaces placeholders by what is installed. Commands that remove the app come last. */
function filledIn(command: string): string {
  return (
    command
      .replace("svc rm NAME", "svc clone hello && svc rm hello-2 --yes")
      .replace("PACKAGE", "hello --name another")
      .replace("./DIR", "./my-app --name third")
      .replace("svc stop NAME", "svc stop hello && svc start hello")
      .replace("svc shell NAME", "svc shell NAME -- true")
      .replace("exec NAME sh", "exec NAME true")
      // A problem of the test's host is not one of the page.
      .replace(/^svc doctor$/, 'svc doctor --config "$HOME/svc.toml" || test $? -eq 1')
      .replace(/^sudo svc daemon reload$/, "svc daemon reload")
      .replace(/\bJOB\b/, "nightly")
      .replaceAll(/\b(?:NAME|ID)\b/g, "hello")
  );
}
