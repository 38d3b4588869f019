/** What the first stage answers is what the whole command line would answer. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { writeCommandFiles } from "../../src/build/command-files.ts";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runFirst, runSvc } from "./support/run-svc.ts";

for (const line of [
  "ls",
  "list",
  "ls --json",
  "status",
  "--json status",
  "app info hello",
  "app info nope",
  "app info nope --json",
  "app start hello",
  "start hello",
  "app restart hello --timeout 5",
  "restart hello other",
  "app stop hello other --json",
  "stop hello nope",
  "app logs hello",
  "logs hello --no-color",
  "-y ls",
]) {
  for (const terminal of [false, true]) {
    test(`svc ${line}${terminal ? " on a terminal" : ""} says the same in the first stage`, async (t) => {
      await using daemon = await startFakeDaemon([appOf({ id: "hello" }), appOf({ id: "other" })]);
      const args = ["--socket", daemon.socketPath, ...line.split(" ")];
      const first = await runFirst(args, { terminal });
      t.not(first, undefined);
      t.deepEqual(first, await runSvc(args, { terminal }));
    });
  }
}

for (const line of [
  "",
  "ls extra",
  "ls --jsn",
  "ls -q",
  "ls --columns id",
  "ls --socket=x",
  "ls --socket",
  "ls --timeout 0",
  "ls --timeout 1e3",
  "app",
  "app start",
  "app start --no-wait hello",
  "app info a b",
  "app logs hello -f",
  "app start -- hello",
  "app start --help",
  "info hello",
  "install hello",
  "help ls",
  "toString",
  "app toString x",
  "completion nope",
  "daemon --check",
  "daemon reload",
  "daemon --config",
  "daemon --config --check",
  "daemon --config=x",
  "daemon --config x y",
]) {
  test(`svc ${line} is for the whole command line`, async (t) => {
    t.is(await runFirst(line === "" ? [] : line.split(" ")), undefined);
  });
}

for (const line of ["daemon", "daemon --config /etc/own.toml"]) {
  test(`svc ${line} begins the daemon in the first stage as the whole command line does`, async (t) => {
    for (const run of [runFirst, runSvc]) {
      const begun: unknown[] = [];
      const runDaemon = ({
        configFile,
        checkOnly,
      }: {
        configFile: string | undefined;
        checkOnly: boolean;
      }) => {
        begun.push({ configFile, checkOnly });
        return Promise.resolve();
      };
      t.like(await run(line.split(" "), { dependencies: { runDaemon } }), { exitCode: 0 });
      t.deepEqual(begun, [{ configFile: line.split(" ")[2], checkOnly: false }]);
    }
  });
}

test("a line that no socket answers says the same in the first stage", async (t) => {
  const args = ["ls", "--socket", "/nonexistent/svc.sock"];
  t.deepEqual(await runFirst(args), await runSvc(args));
});

test("the version and the completion scripts are the whole command line's", async (t) => {
  for (const line of ["--version", "-V", "completion bash", "completion zsh", "completion fish"]) {
    t.deepEqual(await runFirst(line.split(" ")), await runSvc(line.split(" ")), line);
  }
});

test("help and completion from a bundle's files are the whole command line's", async (t) => {
  const builtDir = await mkdtemp(join(tmpdir(), "svc-built-"));
  try {
    await writeCommandFiles(builtDir);
    for (const columns of [80, 200]) {
      for (const arg of ["--help", "-h", "help"]) {
        const [first, whole] = [await helpAt(columns, arg, builtDir), await helpAt(columns, arg)];
        t.is(first, whole, `${arg} at ${columns}`);
        t.regex(first ?? "", /Exit codes:/);
      }
    }
    t.is(await helpAt(60, "--help", builtDir), undefined);
    for (const words of [["st"], ["app", "re"], ["schedule", "add", "hourly", "app_s"], ["start", "--no"]]) {
      const args = ["__complete", ...words];
      t.deepEqual(await runFirst(args, { builtDir }), await runSvc(args), words.join(" "));
    }
  } finally {
    await rm(builtDir, { recursive: true });
  }
});

/** @param builtDir of the first stage; undefined for the whole */
async function helpAt(columns: number, arg: string, builtDir?: string): Promise<string | undefined> {
  let text = "";
  const stdout = { columns, isTTY: true, write: (part: string) => (text += part) !== "" };
  const host = { stdout: stdout as never };
  const run =
    builtDir === undefined ? await runSvc([arg], { host }) : await runFirst([arg], { host, builtDir });
  return run === undefined ? undefined : text;
}
