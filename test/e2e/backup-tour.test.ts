/** The commands of the guide about backups, as a new user would type them. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { appendFile, cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { hasAge, newAgeKey } from "../support/age.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { readSection, typedLines } from "../support/docs.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { hasS3Server, startS3Server } from "../support/s3-server.ts";
import { main } from "../support/svc-main.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

async function shownLines(): Promise<string[]> {
  const lines = typedLines(await readSection("docs/schedules-and-backups.md", "Backups"));
  return lines.filter((line) => line.startsWith("svc "));
}

interface Ended {
  code: number;
  out: string;
  err: string;
}

/** In a shell in the daemon's directory. Questions are confirmed. */
function type(daemon: TestDaemon, line: string): Promise<Ended> {
  const asks = /^svc (?:backup restore|app remove) /.test(line) ? " --yes" : "";
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

  const lines = await shownLines();
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
    const { code, out, err } = await type(daemon, real);
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
