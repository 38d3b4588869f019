import test from "ava";
import { execFile, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, chmod, mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { jobOf } from "./support/fake-schedules.ts";
import type { App } from "../../gen/svc/v1/app_pb.ts";
import { main } from "../support/svc-main.ts";
import { runSvc } from "./support/run-svc.ts";
import { completionScripts } from "../../src/cli/completion/completion-scripts.ts";

const run = promisify(execFile);

async function complete(words: readonly string[]): Promise<string[]> {
  const { stdout, exitCode } = await runSvc(["__complete", ...words]);
  return exitCode === 0
    ? stdout
        .split("\n")
        .slice(0, -1)
        .map((line) => line.split("\t")[0] ?? "")
    : ["failed"];
}

for (const [words, expected] of [
  [["st"], ["start", "stop", "stats", "stacks", "status"]],
  [
    ["help", "pa"],
    ["package", "package-your-app", "packages"],
  ],
  [["help", "backup", "ve"], ["verify"]],
  [["backup", "help", "ve"], ["verify"]],
  [["backup", "help", "pa"], []],
  [
    ["app", "re"],
    ["restart", "repull", "rename", "remove"],
  ],
  [["app", "logs", "--fol"], ["--follow"]],
  [["app", "logs", "--tail", ""], []],
  [
    ["completion", ""],
    ["bash", "zsh", "fish"],
  ],
  [["completion", "bash", ""], []],
  [["api", "AppService.Start"], ["AppService.StartApp"]],
  [["--socket", "x", "dis"], ["disk"]],
  [
    ["ls", "--state", "st"],
    ["stopped", "starting", "stopping"],
  ],
  [["ls", "--runtime", "do"], ["docker"]],
  [
    ["events", "--kind", "app.c"],
    ["app.changed", "app.crashed"],
  ],
  [
    ["schedule", "r"],
    ["remove", "run", "runs"],
  ],
  [
    ["schedule", "add", "hourly", "app_s"],
    ["app_start", "app_stop"],
  ],
  [["schedule", "add", "hourly", "http", "--method", "PA"], ["PATCH"]],
  [["schedule", "add", "--catch"], ["--catch-up"]],
] as const) {
  test(`svc ${words.join(" ")}<TAB>`, async (t) => t.deepEqual(await complete(words), [...expected]));
}

test("names of the daemon's containers and projects are completed", async (t) => {
  await using daemon = await startFakeDaemon();
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["docker", ...socket, "stop", "w"]), ["web"]);
  t.deepEqual(await complete(["docker", ...socket, "stop", "web", "w"]), []);
  t.deepEqual(await complete(["docker", ...socket, "logs", "svc"]), ["svc-hello-1"]);
  t.deepEqual(await complete(["docker", ...socket, "restart", "--project", ""]), ["shop"]);
  t.deepEqual(await complete(["docker", "prune", "b"]), ["build-cache"]);
});

test("IDs of the daemon's apps are completed, except those already on the line", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["app", ...socket, "start", "h"]), ["hello"]);
  t.deepEqual(await complete(["app", ...socket, "start", "hello", ""]), []);
  t.deepEqual(await complete(["app", ...socket, "settings", "he"]), ["hello"]);
});

test("IDs of the daemon's jobs are completed, and apps for --app", async (t) => {
  const jobs = [jobOf({ id: "echo" }), jobOf({ id: "push" })];
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })], { jobs, runs: {}, upserts: [] });
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["schedule", ...socket, "run", "e"]), ["echo"]);
  t.deepEqual(await complete(["schedule", ...socket, "runs", "-n", "1", ""]), ["echo"]);
  t.deepEqual(await complete(["schedule", ...socket, "rm", "echo", ""]), []);
  t.deepEqual(await complete(["schedule", ...socket, "add", "hourly", "backup", "--app", ""]), ["hello"]);
});

test("existing storages and sources are completed, but not names of new ones", async (t) => {
  await using daemon = await startFakeDaemon([]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["backup", "create", ...socket, "x", "--storage", ""]), ["local", "nas"]);
  t.deepEqual(await complete(["backup", "storage", "rm", ...socket, "n"]), ["nas"]);
  t.deepEqual(await complete(["source", "remove", ...socket, ""]), ["main"]);
  t.deepEqual(await complete(["source", "add", ...socket, ""]), []);
});

test("packages of the sources and archives of an app are completed", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["install", ...socket, "w"]), ["web"]);
  t.deepEqual(await complete(["restore", ...socket, "hello", ""]), ["latest", "hello-1.tar.zst"]);
  t.deepEqual(await complete(["backup", "verify", ...socket, "hello", "hello-"]), ["hello-1.tar.zst"]);
});

test("tags of the named app are completed if the daemon already knows them", async (t) => {
  const origin = (tag: string, kind = "git") => ({ origin: { kind, url: "/r", tag } }) as Partial<App>;
  const apps = [
    appOf({ id: "web", ...origin("v1.0.0"), availableVersion: "v1.1.0" }),
    appOf({ id: "tracked", ...origin("") }),
    appOf({ id: "plain", ...origin("", "directory"), availableVersion: "9.0.0" }),
  ];
  await using daemon = await startFakeDaemon(apps, undefined, apps.length);
  const socket = ["--socket", daemon.socketPath];
  t.deepEqual(await complete(["upgrade", ...socket, "web", "--version", ""]), ["v1.1.0", "v1.0.0"]);
  t.deepEqual(await complete(["upgrade", ...socket, "--version", "v1.1"]), ["v1.1.0"]);
  t.deepEqual(await complete(["upgrade", ...socket, "plain", "--version", ""]), []);
});

for (const { what, words, expected } of [
  { what: "apps", words: ["app", "start", ""], expected: "web-1000" },
  { what: "tags", words: ["upgrade", "web-1000", "--version", ""], expected: "v2" },
  { what: "jobs", words: ["schedule", "run", ""], expected: "echo" },
  { what: "storages", words: ["backup", "create", "web-1", "--storage", ""], expected: "nas" },
  { what: "containers", words: ["docker", "stop", ""], expected: "web" },
]) {
  test(`a bundle completes ${what} with one request, in one process`, async (t) => {
    const origin = { kind: "git", url: "/r", tag: "v1" } as App["origin"] & object;
    const apps = Array.from({ length: 1_000 }, (_, at) =>
      appOf({ id: `web-${at + 1}`, origin, availableVersion: "v2" }),
    );
    await using daemon = await startFakeDaemon(
      apps,
      { jobs: [jobOf({ id: "echo" })], runs: {}, upserts: [] },
      apps.length,
    );
    const seen = await mkdtemp(join(tmpdir(), "svc-seen-"));
    t.teardown(() => rm(seen, { recursive: true }));
    const line = ["__complete", words[0] ?? "", "--socket", daemon.socketPath, ...words.slice(1)];
    const env = { PATH: process.env["PATH"] ?? "", HOME: seen, NODE_V8_COVERAGE: seen };
    const { stdout } = await run(process.execPath, [main, ...line], { env });
    t.true(
      stdout.split("\n").some((each) => each.startsWith(`${expected}\t`)),
      stdout.slice(0, 200),
    );
    t.is(daemon.requests.length, 1);
    // One report for each process: a daemon would write another one.
    t.is((await readdir(seen)).length, 1);
  });
}

test("short forms complete IDs; a hidden command is not a candidate, but its arguments are completed", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const socket = ["--socket", daemon.socketPath];
  for (const verb of ["restart", "logs", "rm", "info", "status", "open", "exec", "settings", "update"])
    t.deepEqual(await complete([verb, ...socket, "he"]), ["hello"], verb);
  t.deepEqual(await complete(["app", "l"]), ["logs"]);
  t.deepEqual(await complete(["app", "ls", "--own"]), ["--owner"]);
});

test("an unreachable daemon completes nothing, without delay", async (t) => {
  t.deepEqual(await complete(["app", "--socket", "/nonexistent", "start", ""]), []);
});

test("an unresponsive daemon completes nothing, after a short timeout", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-complete-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const mute = createServer().listen(join(dir, "socket"));
  await once(mute, "listening");
  t.teardown(() => mute.close());
  const begun = performance.now();
  t.deepEqual(await complete(["app", "--socket", join(dir, "socket"), "start", ""]), []);
  // The daemon has half a second; the rest allows for a slow test host.
  t.true(performance.now() - begun < 10_000);
});

test("keys of settings are completed, and values of enums", async (t) => {
  await using daemon = await startFakeDaemon([appOf({ id: "hello" })]);
  const after = (...words: string[]) =>
    complete(["--socket", daemon.socketPath, "app", "settings", ...words]);
  t.deepEqual(await after("get", "hello", "ch"), ["channel"]);
  t.deepEqual(await after("hello", "ch"), ["channel"]);
  t.deepEqual(await after("unset", "hello", "channel", "ch"), [], "each once");
  t.deepEqual(await after("set", "hello", "gre"), ["greeting="]);
  t.deepEqual(await after("set", "hello", "ch"), ["channel="]);
  t.deepEqual(await after("set", "hello", "le"), ["level=low", "level=high"]);
  t.deepEqual(await after("set", "hello", "level=h"), ["level=high"]);
});

// Completion in each shell, with svc's script and a svc with a fixed response.

const svc = `#!/bin/sh
case "$*" in
  *"app start"*) printf 'hello\\tHello: the first\n' ;;
  *"settings set"*) printf 'greeting=\\tWhat it says\n' ;;
  *"docker inspect"*) printf 'web:1\\tA container\n' ;;
  *"upgrade"*) printf '%s\\tA tag\n' 'v1;touch$IFS''pwned' ;;
esac
`;

/** The line after a tab. fish reports neither the space that it adds nor how it quotes the word. */
const cases = [
  { line: "svc app start h", completed: "svc app start hello " },
  { line: "svc app settings set hello gr", completed: "svc app settings set hello greeting=" },
  { line: "svc docker inspect w", completed: "svc docker inspect web:1 " },
  { line: "svc upgrade hello --version v", completed: "svc upgrade hello --version v1\\;touch\\$IFSpwned " },
  // Without candidates from svc, the shell completes file names.
  { line: "svc backup upload arch", completed: "svc backup upload archive.tar.zst " },
];

/** A shell at a terminal that prints its line at Ctrl-X. */
const zshrc = `PS1=
autoload -U compinit; compinit -u -D
source $HOME/script.zsh
show() { print -r -- "LINE[$BUFFER]"; BUFFER=; zle accept-line }
zle -N show
bindkey '^I' complete-word '^X' show
print READY
`;

/** Types each line, a tab and Ctrl-X into such a shell, and prints the output. */
const zshDriver = String.raw`zmodload zsh/zpty
zpty shell zsh -d -i
zpty -r shell seen '*READY*'
for line in "$@"; do
  zpty -w -n shell "$line"$'\t\x18'
  zpty -r shell seen '*LINE\[*\]*'
  print -r -- "$seen"
done
zpty -d shell
`;

/** By shell, returns the lines after the tab. */
const completeIn: Readonly<Record<"zsh" | "fish", (script: string) => Promise<string[]>>> = {
  zsh: async (script) => {
    const around = await surroundings(script);
    await writeFile(join(around.env.HOME, ".zshrc"), zshrc);
    const { stdout } = await run(
      "zsh",
      ["-f", "-c", zshDriver, "zsh", ...cases.map(({ line }) => line)],
      around,
    );
    return [...stdout.matchAll(/LINE\[(.*?)\]/g)].map(([, line]) => line ?? "");
  },
  fish: (script) =>
    Promise.all(
      cases.map(async ({ line, completed }) => {
        const command = `source ${script}; complete -C '${line}'`;
        const { stdout } = await run("fish", ["-c", command], await surroundings(script));
        const candidates = stdout
          .split("\n")
          .flatMap((each) => (each === "" ? [] : [each.split("\t", 1).join("")]));
        const before = line.slice(0, line.lastIndexOf(" ") + 1);
        return `${before}${candidates.join(",")}${completed.endsWith(" ") ? " " : ""}`;
      }),
    ),
};

/** A directory with a file to complete, and next to the script a home directory and a `svc`. */
async function surroundings(
  script: string,
): Promise<{ cwd: string; env: { PATH: string; HOME: string; TERM: string } }> {
  const dir = join(script, "..");
  const files = join(dir, "files");
  await mkdir(files, { recursive: true });
  await writeFile(join(files, "archive.tar.zst"), "");
  await writeFile(join(dir, "svc"), svc);
  await chmod(join(dir, "svc"), 0o755);
  return { cwd: files, env: { PATH: `${dir}:${process.env["PATH"] ?? ""}`, HOME: dir, TERM: "xterm" } };
}

for (const shell of ["zsh", "fish"] as const) {
  const why = spawnSync(shell, ["--version"]).error === undefined ? undefined : `needs ${shell}`;
  (why === undefined ? test : test.skip)(
    `${shell} completes candidates from svc, and files otherwise${why === undefined ? "" : ` (skipped: ${why})`}`,
    async (t) => {
      const dir = await mkdtemp(join(tmpdir(), "svc-complete-"));
      t.teardown(() => rm(dir, { recursive: true, force: true }));
      const script = join(dir, `script.${shell}`);
      await writeFile(script, completionScripts[shell]);
      t.deepEqual(
        await completeIn[shell](script),
        cases.map(({ completed }) => (shell === "fish" ? completed.replaceAll("\\", "") : completed)),
      );
    },
  );
}

test("bash completes candidates from svc, and files otherwise", async (t) => {
  const { stdout } = await runSvc(["completion", "bash"]);
  await t.notThrowsAsync(run("bash", ["-n", "-c", stdout]));
  const script = `svc() { printf '%s\\t\\n' hello help greeting= 'v1;touch$IFS\\pwned' '$(id)'; }\n${stdout}
COMP_WORDS=(svc app start h) COMP_CWORD=3 _svc_complete; printf '%s,' "\${COMPREPLY[@]}"; complete -p svc`;
  t.is(
    (await run("bash", ["-c", script])).stdout,
    "hello,help,greeting=,v1\\;touch\\$IFS\\\\pwned,\\$\\(id\\),complete -o default -F _svc_complete svc\n",
  );
});
