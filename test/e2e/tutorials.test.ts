/** The commands of docs/tutorials, and those of docs/how-to that need one machine, as a reader types them. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { readPage } from "../support/docs.ts";
import { eventually } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";

const minute = 60_000;
/** Commands that ask, and the options that agree. */
const agreements: readonly (readonly [RegExp, string])[] = [
  [/^svc backup restore\b/, " --yes --accept-permissions"],
  [/^svc file rm\b/, " --yes"],
];
/** Commands that continue until Ctrl-C. */
const endless = /^svc (?:package run|.*(?: -f | --watch))/;

/** The commands of all `console` and `sh` blocks. A here-document belongs to its command. */
async function commandsOf(page: string): Promise<string[]> {
  const blocks = [...(await readPage(page)).matchAll(/^```(console|sh)\n(.*?)^```/gms)];
  const commands = blocks.flatMap(([, kind, text = ""]) => {
    const body = kind === "console" ? text : text.replaceAll(/^/gm, "$ ").replace(/\$ $/, "");
    return body.split(/^\$ /m).slice(1);
  });
  return commands.map((text) => (text.includes("<<") ? text : text.trim().replace(/ +# .*$/, "")));
}

interface Reader {
  readonly daemon: TestDaemon;
  /** Types a command in the current directory, which `cd` changes. @returns both outputs */
  readonly type: (command: string) => Promise<string>;
}

async function readerOn(daemon: TestDaemon): Promise<Reader> {
  const bin = join(daemon.dir, "bin");
  await mkdir(bin);
  const program = `#!/bin/sh\nexec "${process.execPath}" "${main}" --socket "${daemon.socketPath}" "$@"\n`;
  await writeFile(join(bin, "svc"), program, { mode: 0o755 });
  await writeFile(join(daemon.dir, ".gitconfig"), "[user]\n  name = Ada\n  email = ada@example.org\n");
  let directory = daemon.dir;
  const type = (command: string): Promise<string> => {
    const agreed = command + (agreements.find(([asks]) => asks.test(command))?.[1] ?? "");
    // The signal of Ctrl-C, after time enough to start on a busy host; 124: the command was still running.
    const line = endless.test(command) ? `timeout --signal=INT 20 ${agreed}; test $? -eq 124` : agreed;
    const env = { PATH: `${bin}:${process.env["PATH"] ?? ""}`, HOME: daemon.dir };
    return new Promise<string>((resolve, reject) => {
      const shell = execFile(
        "sh",
        ["-c", `{\n${line}\n} 2>&1; code=$?; pwd > "${daemon.dir}/pwd"; exit $code`],
        { cwd: directory, env },
        (error, output) => {
          if (error !== null) reject(new Error(`${command}: ${output}`));
          else resolve(output);
        },
      );
      shell.stdin?.end();
    }).then(async (output) => {
      directory = (await readFile(join(daemon.dir, "pwd"), "utf8")).trim();
      return output;
    });
  };
  return { daemon, type };
}

/** Types the commands of a page. @returns the output of each command */
async function follow({ type }: Reader, page: string, skip?: RegExp): Promise<Map<string, string>> {
  const outputs = new Map<string, string>();
  for (const command of await commandsOf(page)) {
    if (skip?.test(command) !== true) outputs.set(command, await type(command));
  }
  assert.ok(outputs.size > 1, `${page} has commands`);
  return outputs;
}

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
  const outputs: string[] = [];
  for (const command of await commandsOf("docs/tutorials/package-your-app.md")) {
    outputs.push(await reader.type(command));
    if (command.startsWith("svc package init")) await addSetting(t, join(daemon.dir, "notes/svc.yaml"));
  }
  t.regex(outputs.at(-1) ?? "", /notes-git.*v1\.1\.0/);
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
  await here.type("svc install hello --start");
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

/** Pages with what a reader has before, and the commands that need something else. */
const guides: readonly { page: string; skip?: RegExp; prepare?: string }[] = [
  // The compose file is the reader's.
  { page: "change-a-port", skip: /stack/ },
  {
    page: "restore-one-file",
    prepare: "svc file put notes.txt hello:data/notes.txt && svc backup create hello",
  },
  { page: "manage-files", prepare: "svc file put notes.txt hello:data/app.log" },
  // Compose needs a container engine.
  { page: "open-a-terminal", skip: /team/ },
  {
    page: "find-a-failing-job",
    prepare: "svc schedule add '0 3 * * *' shell --id nightly --command true && svc schedule run nightly",
  },
  { page: "watch-the-host", skip: /^curl/ },
];

for (const { page, skip, prepare } of guides) {
  test(`the commands of docs/how-to/${page}.md work`, async (t) => {
    t.timeout(10 * minute);
    await using daemon = await startDaemon();
    const reader = await readerOn(daemon);
    await writeFile(join(daemon.dir, "notes.txt"), "todo: water the plants\n");
    await reader.type("svc install hello --start");
    if (prepare !== undefined) await reader.type(prepare);
    if (page === "find-a-failing-job")
      await eventually(async () => {
        const { runs } = await daemon.client(ScheduleService).listScheduleRuns({ id: "nightly" });
        assert.notEqual(runs[0]?.status, "RUNNING");
      });
    t.true((await follow(reader, `docs/how-to/${page}.md`, skip)).size > 1);
  });
}
