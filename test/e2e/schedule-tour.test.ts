/** The commands of the guide about scheduled jobs, as a new user would type them, and their output. */
import { execFile } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { startDaemon } from "../support/daemon.ts";
import { readSection } from "../support/docs.ts";
import { main } from "../support/svc-main.ts";

interface Step {
  readonly line: string;
  /** The output shown below it. */
  readonly shown: string;
}

async function steps(): Promise<Step[]> {
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
function type(dir: string, socketPath: string, script: string): Promise<string> {
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
  const tour = await steps();
  t.true(tour.length >= 13, "the section contains commands");
  for (const { line, shown } of tour) {
    if (line.startsWith("cat ")) await writeFile(join(daemon.dir, line.slice("cat ".length)), shown);
    const isFunction = /^\w+\(\) /.test(line);
    if (isFunction) functions += `${line}\n`;
    const typed = isFunction ? "" : line.replace("*/5 * * * *", distant);
    const output = steady(await type(daemon.dir, daemon.socketPath, `${functions}${typed}`));
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
