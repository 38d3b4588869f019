/** Output at a terminal, and watched lists. */
import { execFile } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { create } from "@bufbuild/protobuf";
import test from "ava";
import { AppOriginSchema } from "../../gen/svc/v1/app_pb.ts";
import type { Client } from "../../src/cli/client/client.ts";
import { CommandContext } from "../../src/cli/context.ts";
import type { CliHost } from "../../src/cli/host.ts";
import { watch } from "../../src/cli/output/watch-list.ts";
import { SvcError } from "../../src/errors.ts";
import { appOf, localUser, startFakeDaemon } from "./support/fake-daemon.ts";
import { hasScript, needsScript, onTerminal } from "./support/on-terminal.ts";

const apps = [appOf({ id: "hello", name: "Hello \x1b[2J\u009b2J", state: "RUNNING" })];

const terminalTest = hasScript ? test : test.skip;

terminalTest(
  `output longer than the terminal uses a pager, or is printed if there is none${needsScript}`,
  async (t) => {
    // Without a terminal of its own, `script` reports the size 0: no text is too long then.
    const plain = await onTerminal(["help", "packages"], [], { PAGER: "sed s/^/PAGED:/" });
    t.regex(plain.screen, /^\S*PACKAGES/);
    const rows = { SVC_TEST_ROWS: "10" };
    const paged = await onTerminal(["help", "packages"], [], { PAGER: "sed s/^/PAGED:/", ...rows });
    t.is(paged.exitCode, 0, paged.screen);
    t.regex(paged.screen, /^PAGED:\S*PACKAGES\S*\r\nPAGED:\r\n/);
    for (const PAGER of ["", "/nonexistent/pager", "/etc/passwd"]) {
      const { exitCode, screen } = await onTerminal(["help", "packages"], [], { PAGER, ...rows });
      t.is(exitCode, 0, screen);
      t.regex(screen, /^\S*PACKAGES\S*\r\n/m);
    }
    // A host without `less`.
    const bin = await mkdtemp(join(tmpdir(), "svc-bin-"));
    t.teardown(() => rm(bin, { recursive: true }));
    for (const program of ["script", "sh", "stty"]) {
      const { stdout } = await promisify(execFile)("sh", ["-c", `command -v ${program}`]);
      await symlink(stdout.trim(), join(bin, program));
    }
    const bare = await onTerminal(["help", "packages"], [], { PATH: bin, SHELL: "/bin/sh", ...rows });
    t.is(bare.exitCode, 0, bare.screen);
    t.regex(bare.screen, /^\S*PACKAGES\S*\r\n/, "no message about it");
  },
);

terminalTest(`only the pager receives Ctrl-C while it runs${needsScript}`, async (t) => {
  const PAGER = "kill -INT $PPID; sleep 1; kill -INT $PPID; sed s/^/PAGED:/";
  const { exitCode, screen } = await onTerminal(["help", "packages"], [], { PAGER, SVC_TEST_ROWS: "10" });
  t.is(exitCode, 0, screen);
  t.regex(screen, /^PAGED:\S*PACKAGES\S*\r\n/);
});

terminalTest(`a license is shown, with a question${needsScript}`, async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const { exitCode, screen } = await onTerminal(
    ["install", "licensed", "--socket", daemon.socketPath],
    [
      ["Accept the license of licensed? [y/N]", "y"],
      ["Grant these permissions? [y/N]", "y"],
    ],
  );
  t.is(exitCode, 0, screen);
  t.regex(screen, /--- LICENSE ---\r\nBe kind\.\\x1b\[2J/);
  t.regex(screen, /Permission: The app wants the moon\./);
  t.regex(screen, /Installed licensed 1\.0\.0/);
});

terminalTest(`a second install of a directory asks first, and names the upgrade${needsScript}`, async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "svc-second-"));
  t.teardown(() => rm(directory, { recursive: true }));
  await writeFile(
    join(directory, "svc.yaml"),
    "id: web\nname: Web\nversion: 1.0.0\nprocess: { exec: [./web] }\n",
  );
  const origin = create(AppOriginSchema, { kind: "directory", url: directory });
  await using daemon = await startFakeDaemon([appOf({ id: "web", owner: localUser.uid, origin })]);
  const { exitCode, screen } = await onTerminal(
    ["install", directory, "--socket", daemon.socketPath],
    [["Install a second app with its own data? [y/N]", "n"]],
  );
  t.is(exitCode, 5, screen);
  t.regex(screen, /is already installed as web; to apply changes: svc upgrade web\r\n/);
});

terminalTest(`declining a license installs nothing${needsScript}`, async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const { exitCode, screen } = await onTerminal(
    ["install", "licensed", "--socket", daemon.socketPath],
    [["[y/N]", "n"]],
  );
  t.is(exitCode, 5, screen);
  t.regex(screen, /nothing was changed: the license was not accepted/);
});

terminalTest(`accepting a license does not grant permissions${needsScript}`, async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const { exitCode, screen } = await onTerminal(
    ["install", "licensed", "--accept-license", "--socket", daemon.socketPath],
    [["Grant these permissions? [y/N]", "n"]],
  );
  t.is(exitCode, 5, screen);
  t.notRegex(screen, /--- LICENSE ---/);
  t.regex(screen, /nothing was changed: the permissions were not granted/);
});

terminalTest(`an ambiguous name offers a numbered choice${needsScript}`, async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const { exitCode, screen } = await onTerminal(
    ["install", "twice", "--socket", daemon.socketPath],
    [
      ["[1-2]", "7"],
      ["[1-2]", "2"],
    ],
  );
  t.is(exitCode, 0, screen);
  t.regex(screen, /2\. other\/twice {2}Other/);
  t.regex(screen, /Installed twice 1\.0\.0/);
});

for (const [answer, exitCode, said] of [
  ["y", 0, /Cloned sharer to sharer-2/],
  ["", 5, /nothing was changed: the app was not cloned/],
] as const) {
  terminalTest(`a clone that would share volumes asks first: "${answer}"${needsScript}`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const run = await onTerminal(
      ["app", "clone", "sharer", "--socket", daemon.socketPath],
      [["Clone it anyway? [y/N]", answer]],
    );
    t.is(run.exitCode, exitCode, run.screen);
    t.regex(run.screen, /would both use the volume \\x1b\[2J\./);
    t.regex(run.screen, said);
  });
}

terminalTest(
  `setting a secret without a value prompts for it without showing it${needsScript}`,
  async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const { exitCode, screen } = await onTerminal(
      ["app", "settings", "set", "hello", "password", "--socket", daemon.socketPath],
      [["password: ", "hush"]],
    );
    t.is(exitCode, 0, screen);
    // The fake daemon returns the value; a typed echo would appear before that.
    const [typed, answer] = [screen.slice(0, screen.indexOf("KEY")), screen.slice(screen.indexOf("KEY"))];
    t.regex(answer, /greeting +hi [^]*password +hush/);
    t.notRegex(typed, /hush/);
  },
);

for (const [answer, exitCode, said] of [
  ["y", 0, /Removed hello and freed/],
  ["", 5, /Nothing was changed\./],
] as const) {
  terminalTest(`removal is confirmed: "${answer}"${needsScript}`, async (t) => {
    await using daemon = await startFakeDaemon(apps);
    const run = await onTerminal(
      ["app", "remove", "hello", "--socket", daemon.socketPath],
      [["Remove hello with all data? [y/N]", answer]],
    );
    t.is(run.exitCode, exitCode, run.screen);
    t.regex(run.screen, said);
  });
}

terminalTest(`a terminal gets color, and untrusted text is escaped${needsScript}`, async (t) => {
  await using daemon = await startFakeDaemon(apps);
  const socket = ["--socket", daemon.socketPath];
  const list = await onTerminal(["ls", ...socket]);
  t.regex(list.screen, /\x1b\[32mRUNNING\x1b\[39m/);
  const logs = await onTerminal(["app", "logs", "hello", ...socket]);
  t.regex(logs.screen, /one of 100 \\x1b\]0;title\\x07/);
  const json = await onTerminal(["ls", "--json", ...socket]);
  for (const { screen } of [list, logs, json]) {
    t.notRegex(screen.replace(/\x1b\[\d+m/g, ""), /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/);
  }
  const plain = await onTerminal(["ls", "--no-color", ...socket]);
  t.notRegex(plain.screen, /\x1b/);
});

terminalTest(`an app's log keeps its colors at a terminal${needsScript}`, async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "colorful" })]);
  const logs = await onTerminal(["app", "logs", "colorful", "--socket", daemon.socketPath]);
  t.true(logs.screen.includes("\x1b[1;31mred\\x1b[2J\x1b[0m\r\n"), logs.screen);
});

for (const [title, options, env] of [
  ["--no-color", ["--no-color"], {}],
  ["NO_COLOR", [], { NO_COLOR: "1" }],
] as const) {
  terminalTest(`an app's log has no colors with ${title}${needsScript}`, async (t) => {
    await using daemon = await startFakeDaemon([appOf({ id: "colorful" })]);
    const args = ["app", "logs", "colorful", ...options, "--socket", daemon.socketPath];
    const logs = await onTerminal(args, [], env);
    t.regex(logs.screen, /\\x1b\[1;31mred\\x1b\[2J\r\n/);
    t.notRegex(logs.screen, /\x1b/);
  });
}

// A watched list, poll by poll: what ends it, and when notes are printed, on a terminal and elsewhere.

type Look = (context: CommandContext) => void | Promise<void>;

interface Watched {
  /** What ended it: "interrupted" after the last poll. */
  readonly ended: string;
  readonly looks: number;
  readonly stdout: readonly string[];
  readonly stderr: readonly string[];
}

async function watched(looks: readonly Look[], { isTTY = false } = {}): Promise<Watched> {
  const written = { stdout: [] as string[], stderr: [] as string[] };
  const stream = (name: keyof typeof written) => ({
    ...{ isTTY, columns: 20 },
    write: (text: string) => written[name].push(text) > 0,
  });
  const host = {
    ...{ env: {}, interrupted: new AbortController().signal },
    ...{ stdout: stream("stdout"), stderr: stream("stderr") },
  } as CliHost;
  const context = new CommandContext(host, { color: false }, () => Promise.reject(new Error("in-process")));
  context.client = () => Promise.resolve({ isAvailable: () => Promise.resolve(true) } as Client);
  let looked = 0;
  context.pause = () =>
    looked < looks.length ? Promise.resolve() : Promise.reject(new SvcError("canceled", "interrupted"));
  const ended = await watch(context, async (once) => looks[looked++]?.(once)).then(
    () => "",
    (error: unknown) => (error as Error).message,
  );
  return { ended, looks: looked, ...written };
}

const list: Look = (context) => context.print("hello\n");
const unavailable: Look = () => {
  throw new SvcError("unavailable", "nobody is there");
};
const noted: Look = async (context) => {
  await context.print("hello\n");
  context.note("one of them is stopped since yesterday");
};

test("a daemon that never responded is an error at once", async (t) => {
  t.like(await watched([unavailable, list]), { ended: "nobody is there", looks: 1, stdout: [], stderr: [] });
});

test("any error other than an unavailable daemon ends the list", async (t) => {
  const refused: Look = () => {
    throw new SvcError("not_found", "no such app");
  };
  t.like(await watched([list, refused, list]), { ended: "no such app", looks: 2 });
});

test("without a terminal, notes and an unavailable daemon are reported once", async (t) => {
  const { ended, stdout, stderr } = await watched([
    noted,
    noted,
    unavailable,
    unavailable,
    noted,
    unavailable,
  ]);
  t.is(ended, "interrupted");
  t.deepEqual(stdout, ["hello\n\n", "hello\n\n", "hello\n\n"]);
  const lost = "nobody is there; waiting\n";
  t.deepEqual(stderr, ["one of them is stopped since yesterday\n", lost, lost]);
});

test("on a terminal, notes are below the list, one line each, and redrawn with it", async (t) => {
  const { ended, stdout, stderr } = await watched([noted, noted, unavailable, unavailable, list], {
    isTTY: true,
  });
  t.is(ended, "interrupted");
  t.deepEqual(stderr, []);
  const shown = "hello\none of them is stop…\n";
  const back = (lines: number): string => `\x1b[${lines}A\x1b[J`;
  t.deepEqual(stdout, [
    shown,
    back(2) + shown,
    `${back(2)}${shown}nobody is there; waiting\n`,
    `${back(3)}hello\n`,
  ]);
});
