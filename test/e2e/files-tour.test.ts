/** The commands of the guide about files, as a new user who is not root would type them. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot, startDaemon } from "../support/daemon.ts";
import { freePort } from "../support/packages.ts";
import { readSection, typedLines } from "../support/docs.ts";
import { main } from "../support/svc-main.ts";

const rootTest = isRoot ? test : test.skip;
/** `games`, an account that every Debian has. */
const uid = 5;

async function shownLines(): Promise<string[]> {
  return typedLines(await readSection("docs/try.md", "Files"));
}

/** In a shell, with a user's socket, in a local directory. Questions are confirmed. */
function type(
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
  await using door = await daemon.as(uid);
  const apps = door.client(AppService);
  const files = door.client(FileService);
  const { directory } = await apps.installApp({ spec: "hello", settings: { port: await freePort() } });
  const notes = join(directory, "data/notes.txt");
  await writeFile(join(daemon.dir, "notes.txt"), "todo: remember the milk\n");

  const lines = await shownLines();
  assert.ok(lines.length > 13, "the section has its lines");
  for (const line of lines) {
    const { etag = "" } = line.includes("ETAG") ? await files.statPath({ path: notes }) : {};
    // Nothing interrupts it here.
    const real = line.replace("ETAG", etag).replace("/PATH/notes.txt", notes).replace("tail -f", "tail");
    if (line.includes("ETAG")) await writeFile(join(daemon.dir, "notes.txt"), `todo: ${etag}\n`);
    const { code, out, err } = await type(daemon.dir, door.socketPath, real);
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
      t.regex((await type(daemon.dir, door.socketPath, real)).out, /"reason":"changed"/);
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
