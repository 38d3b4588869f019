/** `svc schedule` at a terminal: the editor, questions, and escaped output. */
import test from "ava";
import { chmod, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Schedule } from "../../gen/svc/v1/schedule_pb.ts";
import { startFakeDaemon } from "./support/fake-daemon.ts";
import { jobOf, type FakeSchedules } from "./support/fake-schedules.ts";
import { hasScript, needsScript, onTerminal } from "./support/on-terminal.ts";

const terminalTest = hasScript ? test : test.skip;

function schedules(): FakeSchedules {
  const push = jobOf({
    id: "push",
    managedBy: "platform",
    action: { type: "http", url: "https://example.org/", headers: { Authorization: "***" } },
  });
  return { jobs: [jobOf({ id: "echo" }), push], runs: {}, upserts: [] };
}

/**
 * Runs `edit` with a shell script as the editor: `$1` is the file, `$n` counts the calls. TMPDIR shows what
 * is left behind.
 */
async function withEditor(script: string, args: readonly string[], jobs: FakeSchedules) {
  const dir = await mkdtemp(join(tmpdir(), "svc-editor-"));
  try {
    const editor = join(dir, "editor");
    const count = `echo x >> ${dir}/calls; n=$(wc -l < ${dir}/calls); cp "$1" ${dir}/seen; stat -c %a "$1" > ${dir}/mode`;
    await writeFile(editor, `#!/bin/sh\n${count}\n${script}\n`);
    await chmod(editor, 0o755);
    await using daemon = await startFakeDaemon([], jobs);
    const words = ["schedule", "edit", ...args, "--socket", daemon.socketPath];
    const run = await onTerminal(words, [], { VISUAL: "", EDITOR: editor, TMPDIR: dir });
    const seen = await readFile(join(dir, "seen"), "utf8");
    const left = (await readdir(dir)).filter((name) => name.startsWith("svc-edit-"));
    const mode = (await readFile(join(dir, "mode"), "utf8")).trim();
    const leftText = left[0] === undefined ? "" : await readFile(join(dir, left[0], "job.yaml"), "utf8");
    return { ...run, dir, seen, mode, left, leftText };
  } finally {
    await rm(dir, { recursive: true });
  }
}

terminalTest(`edit opens the job in the editor and stores the saved text${needsScript}`, async (t) => {
  const jobs = schedules();
  const run = await withEditor(`sed -i 's/echo hi/echo ho/' "$1"`, ["echo"], jobs);
  t.is(run.exitCode, 0, run.screen);
  t.regex(run.screen, /Changed echo\. Next run/);
  t.regex(run.seen, /^#: Change the job[^]*\ntrigger: "?\*\/5 \* \* \* \*"?\n[^]*command: echo hi/);
  t.is(run.mode, "600");
  t.deepEqual(run.left, []);
  t.like(jobs.upserts, { 0: { id: "echo", timeout: 600, action: { command: "echo ho" } }, length: 1 });
});

terminalTest(
  `edit of a platform's job warns, claims it, and keeps hidden headers${needsScript}`,
  async (t) => {
    const jobs = schedules();
    const run = await withEditor(`sed -i 's/^utc: false/utc: true/' "$1"`, ["push"], jobs);
    t.is(run.exitCode, 0, run.screen);
    t.regex(run.screen, /warning:.* push is managed by "platform"/);
    t.like(jobs.upserts[0], {
      utc: true,
      managedBy: "platform",
      action: { headers: { Authorization: "***" } },
    });
  },
);

for (const [title, script] of [
  ["leaves the file", ":"],
  ["empties the file", `: > "$1"`],
] as const) {
  terminalTest(`edit changes nothing when the editor ${title}${needsScript}`, async (t) => {
    const jobs = schedules();
    const run = await withEditor(script, ["echo"], jobs);
    t.is(run.exitCode, 0, run.screen);
    t.regex(run.screen, /echo is unchanged\./);
    t.is(jobs.upserts.length, 0);
  });
}

for (const [title, mistake, said] of [
  [
    "an invalid trigger",
    `s/^trigger: .*/trigger: 61 * * * */`,
    'WRONG: trigger: minute "61" must be 0 to 59',
  ],
  ["an unknown field", `s/^utc:/utx:/`, "utx"],
  ["invalid YAML", `s/^utc:.*/utc: [/`, "WRONG: "],
] as const) {
  terminalTest(`edit opens the editor again after ${title}${needsScript}`, async (t) => {
    const jobs = schedules();
    const fix = `grep -v '^#:' "$1" | sed 's/^trigger: .*/trigger: hourly/; s/^utx:/utc:/; s/^utc:.*/utc: false/' > "$1.new"; mv "$1.new" "$1"`;
    const script = `if [ $n = 1 ]; then sed -i '${mistake}' "$1"; else ${fix}; fi`;
    const run = await withEditor(script, ["echo"], jobs);
    t.is(run.exitCode, 0, run.screen);
    t.true(run.seen.includes(said), run.seen);
    t.like(jobs.upserts, { 0: { trigger: "hourly" }, length: 1 });
  });
}

terminalTest(`edit fails when the text is saved with the same mistake again${needsScript}`, async (t) => {
  const jobs = schedules();
  const run = await withEditor(`sed -i 's/^trigger: .*/trigger: 61 * * * */' "$1"`, ["echo"], jobs);
  t.is(run.exitCode, 2, run.screen);
  t.regex(run.screen, /error:.* trigger: minute "61" must be 0 to 59/);
  t.deepEqual([jobs.upserts.length, run.left], [0, []]);
});

terminalTest(`edit keeps the text when somebody else has changed the job${needsScript}`, async (t) => {
  const change = (jobs: Schedule[]) =>
    void Object.assign(jobs[0] ?? {}, { comment: "theirs", revision: "2" });
  const jobs: FakeSchedules = { ...schedules(), meanwhile: [change] };
  const run = await withEditor(`sed -i 's/echo hi/echo ho/' "$1"`, ["echo"], jobs);
  t.is(run.exitCode, 5, run.screen);
  t.regex(run.screen, /error:.* job "echo" was changed since it was read/);
  t.deepEqual([jobs.upserts.length, run.left.length], [0, 1]);
  t.true(run.screen.includes(`Your text is saved in ${run.dir}/${run.left[0] ?? ""}/job.yaml`), run.screen);
  t.regex(run.leftText, /command: echo ho/);
  t.notRegex(run.leftText, /revision/);
});

terminalTest(`edit reports a failed editor${needsScript}`, async (t) => {
  const run = await withEditor("exit 3", ["echo"], schedules());
  t.is(run.exitCode, 2, run.screen);
  t.regex(run.screen, /the editor "[^"]*editor" exited with 3; nothing was changed/);
});

for (const [answer, exitCode, said] of [
  ["y", 0, /Removed echo/],
  ["", 5, /Nothing was changed\./],
] as const) {
  terminalTest(`removal is confirmed: "${answer}"${needsScript}`, async (t) => {
    await using daemon = await startFakeDaemon([], schedules());
    const words = ["schedule", "rm", "echo", "--socket", daemon.socketPath];
    const run = await onTerminal(words, [["Remove echo with all recorded runs? [y/N]", answer]]);
    t.is(run.exitCode, exitCode, run.screen);
    t.regex(run.screen, said);
  });
}

terminalTest(`a terminal gets color, and untrusted text is escaped${needsScript}`, async (t) => {
  const evil = "x\x1b]0;t\x07\x9b2J";
  const jobs: FakeSchedules = {
    jobs: [jobOf({ id: "evil", comment: evil, managedBy: evil, action: { type: "shell", command: evil } })],
    runs: { evil: { pieces: [Buffer.from(evil)], end: { status: "FAILED", exitCode: 1, error: evil } } },
    upserts: [],
  };
  await using daemon = await startFakeDaemon([], jobs);
  for (const words of [
    ["list"],
    ["show", "evil"],
    ["run", "evil"],
    ["runs", "evil"],
    ["list", "--json"],
    ["disable", "evil"],
  ]) {
    const { screen } = await onTerminal(["schedule", ...words, "--socket", daemon.socketPath]);
    t.notRegex(screen.replace(/\x1b\[\d+m/g, ""), /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/, words.join(" "));
  }
  const { screen } = await onTerminal(["schedule", "runs", "evil", "--socket", daemon.socketPath]);
  t.regex(screen, /\x1b\[31mFAILED\x1b\[39m/);
});
