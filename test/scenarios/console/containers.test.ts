/** Terminals in containers, and the guide's commands for them. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService, type ConsoleOutput } from "../../../gen/svc/v1/app_pb.ts";
import { runSvc } from "../../cli/support/run-svc.ts";
import { openConsole, type SocketConsole } from "../../console/support/socket-console.ts";
import { linesAbout, typeLine } from "../../e2e/support/terminal-lines.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon, type UserConnection, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { writeFiles } from "../../support/packages.ts";

// Terminals in containers.

const nobody = 65534;
const engineNow = sharedEngine();

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  await engineNow().images.build("example.org/shown:1", {
    entrypoint: ["/bin/sh", "-c", "exec sleep 10000"],
  });
});

interface Shown {
  readonly outputs: readonly ConsoleOutput[];
  readonly text: string;
  readonly errorText: string;
}

/**
 * Opens a terminal, types each piece after the preceding pattern has appeared, and reads to its end or until `until`
 * appears.
 */
async function talk(
  connection: Pick<UserConnection, "client">,
  first: {
    appId: string;
    session: string;
    service?: string;
    command?: string[];
    withoutTerminal?: boolean;
  },
  pieces: readonly (readonly [RegExp, string])[],
  until?: RegExp,
  endsInput = false,
): Promise<Shown> {
  const outputs: ConsoleOutput[] = [];
  const left = new AbortController();
  const text = (): string =>
    outputs
      .map(({ output }) => (output.case === "data" ? Buffer.from(output.value).toString("utf8") : ""))
      .join("");
  async function* inputs() {
    yield { ...first, resize: { columns: 91, rows: 31 } };
    for (const [pattern, piece] of pieces) {
      await eventually(() => assert.match(text(), pattern), 20_000);
      yield { data: Buffer.from(piece) };
    }
    if (endsInput) {
      yield { endOfInput: true };
      return;
    }
    await eventually(() => {
      if (until === undefined) assert.equal(outputs.at(-1)?.output.case, "exit");
      else assert.match(text(), until);
    }, 20_000);
    if (until !== undefined) left.abort();
  }
  try {
    const options = { signal: left.signal };
    for await (const output of connection.client(AppService, "grpc").attachConsole(inputs(), options))
      outputs.push(output);
  } catch (error) {
    if (!left.signal.aborted) throw error;
  }
  const errorText = outputs
    .map(({ output }) => (output.case === "errorData" ? Buffer.from(output.value).toString("utf8") : ""))
    .join("");
  return { outputs, text: text(), errorText };
}

dockerTest(
  `a shell in a container, as its user, with its size and its exit code${needsDocker}`,
  async (t) => {
    await using daemon = await startDaemon({ config: engineNow().config });
    await using user = await daemon.as(nobody);
    const dir = join(daemon.dir, "package");
    await mkdir(dir);
    await writeFile(
      join(dir, "svc.yaml"),
      [
        'id: shown\nname: Shown\nversion: "1"\ndocker: { image: "example.org/shown:1" }',
        "console: { exec: [sh, -c, 'echo console of ${id}; exit 6'] }",
      ].join("\n"),
    );
    const apps = user.client(AppService);
    await apps.installApp({ spec: dir });
    const shell = { appId: "shown", session: "shell" };
    t.like(await errorOf(talk(user, shell, [])), { reason: "app_not_running" });
    await apps.startApp({ id: "shown" });

    const talked = await talk(user, shell, [
      [/[#$] /, "stty size; id -u; echo sum=$((40+2))\n"],
      // Until the shell runs a command, it reads the keys itself.
      [/sum=42/, "echo be$((1))gun; sleep 1000\n"],
      [/be1gun/, "\x03"],
      [/\^C/, "exit 7\n"],
    ]);
    t.regex(talked.text, /31 91/);
    t.regex(talked.text, /^65534\r$/m);
    t.like(talked.outputs.at(-1)?.output, { case: "exit", value: { code: 7 } });

    const piped = {
      ...shell,
      withoutTerminal: true,
      command: ["sh", "-c", "cat; echo oops >&2; tty; exit 8"],
    };
    const sent = "x".repeat(99_999);
    const through = await talk(user, piped, [[/^/, sent]], undefined, true);
    t.is(through.text, `${sent}not a tty\n`);
    t.is(through.errorText, "oops\n");
    t.like(through.outputs.at(-1)?.output, { case: "exit", value: { code: 8 } });

    const pasted = randomBytes(375_000).toString("base64url").repeat(2);
    const piece = 62_500;
    const pieces = Array.from({ length: pasted.length / piece }, (_, at) =>
      pasted.slice(at * piece).slice(0, piece),
    );
    const script = `stty raw -echo; echo ready; head -c ${pasted.length} | md5sum; exit 5`;
    const pasting = pieces.map((each) => [/ready/, each] as const);
    const taken = await talk(user, { ...shell, command: ["sh", "-c", script] }, pasting);
    t.is(pasted.length, 1_000_000);
    t.true(taken.text.includes(createHash("md5").update(pasted).digest("hex")), taken.text.slice(-200));
    t.like(taken.outputs.at(-1)?.output, { case: "exit", value: { code: 5 } });

    const attached = await talk(user, { appId: "shown", session: "attach" }, []);
    t.regex(attached.text, /console of shown/);
    t.like(attached.outputs.at(-1)?.output, { case: "exit", value: { code: 6 } });
    t.like(await errorOf(talk(user, { ...shell, service: "web" }, [])), { code: "InvalidArgument" });

    const left = new AbortController();
    const sleeping = user
      .client(AppService, "grpc")
      .attachConsole(endless({ ...shell, command: ["sleep", "7654"] }), { signal: left.signal });
    const isSleeping = async (): Promise<boolean> => {
      const top = (await engineNow().request("GET", `/containers/${await containerId()}/top`)).expect(
        200,
      ) as {
        Processes: string[][];
      };
      return top.Processes.some((process) => process.at(-1)?.includes("7654"));
    };
    for await (const { output } of sleeping) {
      if (output.case !== "opened") continue;
      await eventually(async () => assert.equal(await isSleeping(), true), 20_000);
      break;
    }
    left.abort();
    await eventually(async () => assert.equal(await isSleeping(), false), 20_000);
    await apps.removeApp({ id: "shown" });
  },
);

dockerTest(
  `processes that a killed daemon left in a container are killed by the next daemon, even if they ignore signals${needsDocker}`,
  async (t) => {
    t.timeout(180_000);
    await using daemon = await startDaemon({ config: engineNow().config });
    const dir = join(daemon.dir, "package");
    await writeFiles(dir, {
      "svc.yaml": 'id: shown\nname: Shown\nversion: "1"\ndocker: { image: "example.org/shown:1" }\n',
    });
    const apps = daemon.client(AppService);
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "shown" });
    const left = new AbortController();
    for (const withoutTerminal of [false, true]) {
      const command = ["sh", "-c", "trap '' HUP; exec sleep 7655"];
      const request = { appId: "shown", session: "shell", command, withoutTerminal };
      const outputs = daemon
        .client(AppService, "grpc")
        .attachConsole(endless(request), { signal: left.signal });
      void Array.fromAsync(outputs).catch(() => undefined);
    }
    const sleeping = async (): Promise<number> => {
      const top = (await engineNow().request("GET", `/containers/${await containerId()}/top`)).expect(
        200,
      ) as { Processes: string[][] };
      return top.Processes.filter((process) => process.at(-1)?.startsWith("sleep 7655")).length;
    };
    await eventually(async () => assert.equal(await sleeping(), 2), 30_000);
    await daemon.kill();
    left.abort();
    t.is(await sleeping(), 2, "the engine keeps them running");
    await daemon.restart();
    await eventually(async () => assert.equal(await sleeping(), 0), 30_000);
    t.is((await daemon.client(AppService).getApp({ id: "shown" })).state, "RUNNING");
    await daemon.client(AppService).removeApp({ id: "shown" });
  },
);

/** Echoes lines until one asks it to exit. */
const talker =
  "while read -r line; do case $line in end) exit 9;; size) stty size;; esac; echo got $line; done";

dockerTest(`a container's main terminal is as large as the smallest window${needsDocker}`, async (t) => {
  t.timeout(180_000);
  await using daemon = await startDaemon({ config: engineNow().config });
  const dir = join(daemon.dir, "package");
  await writeFiles(dir, {
    "svc.yaml": [
      'id: sized\nname: Sized\nversion: "1"\nconsole: true\nrestart: { policy: never }',
      `docker: { image: "example.org/shown:1", entrypoint: [/bin/sh, -c, '${talker}'] }`,
    ].join("\n"),
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "sized" });
  const open = async (): Promise<SocketConsole> => {
    const { token } = await apps.issueConsoleToken({ appId: "sized", session: "attach" });
    return openConsole({ port: daemon.port }, { appId: "sized", session: "attach", token });
  };
  const [one, two, three] = [await open(), await open(), await open()];
  one.sendMessage({ type: "resize", cols: 100, rows: 30 });
  two.sendMessage({ type: "resize", cols: 90, rows: 40 });
  const asked = async (size: RegExp): Promise<void> => {
    const seen = three.shown().length;
    await eventually(() => {
      three.type("size\n");
      assert.match(three.shown().slice(seen).slice(-400), size);
    }, 30_000);
  };
  await asked(/^30 90\r$/m);
  one.sendMessage({ type: "resize", cols: 50, rows: 20 });
  await asked(/^20 50\r$/m);
  one.socket.terminate();
  await asked(/^40 90\r$/m);
  for (const { socket } of [two, three]) socket.terminate();
  await apps.removeApp({ id: "sized" });
  t.pass();
});

dockerTest(
  `a container's main terminal is shared, and the exit code is that of the app${needsDocker}`,
  async (t) => {
    await using daemon = await startDaemon({ config: engineNow().config });
    await using user = await daemon.as(nobody);
    const dir = join(daemon.dir, "package");
    await writeFiles(dir, {
      "svc.yaml": [
        'id: talks\nname: Talks\nversion: "1"\nconsole: true\nrestart: { policy: never }',
        `docker: { image: "example.org/shown:1", entrypoint: [/bin/sh, -c, '${talker}'] }`,
      ].join("\n"),
    });
    const apps = user.client(AppService);
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "talks" });
    const attach = { appId: "talks", session: "attach" };
    // The engine's detach keys are passed to the program.
    const first = await talk(user, attach, [[/^/, "\x10\x11early\n"]], /got .*early/);
    t.regex(first.text, /got .*early/);
    const [watched, typed] = await Promise.all([
      talk(user, attach, []),
      talk(user, attach, [
        [/early/, "\nfrom-one\n"],
        [/got from-one/, "end\n"],
      ]),
    ]);
    t.regex(watched.text, /got from-one/);
    t.regex(typed.text, /got .*early[^]*got from-one/, "its last screen comes first");
    t.like(typed.outputs.at(-1)?.output, { case: "exit", value: { code: 9 } });
    t.like(watched.outputs.at(-1)?.output, { case: "exit", value: { code: 9 } });
    await eventually(async () => {
      const refused = await errorOf(talk(user, attach, []));
      assert.equal(refused.reason, "app_not_running", JSON.stringify(refused));
    }, 20_000);
    await apps.removeApp({ id: "talks" });
  },
);

composeTest(`services of a compose project have shells and their own terminals${needsCompose}`, async (t) => {
  await using daemon = await startDaemon({ config: engineNow().config });
  await using user = await daemon.as(nobody);
  const dir = join(daemon.dir, "package");
  await writeFiles(dir, {
    "svc.yaml":
      'id: pair\nname: Pair\nversion: "1"\ncompose: { file: compose.yaml }\nrestart: { policy: never }\n',
    "compose.yaml": [
      "services:",
      '  plain: { image: "example.org/shown:1" }',
      "  talks:",
      '    image: "example.org/shown:1"',
      "    tty: true",
      "    stdin_open: true",
      `    entrypoint: [/bin/sh, -c, '${talker.replaceAll("$", "$$$$")}']`,
    ].join("\n"),
  });
  const apps = user.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id: "pair" });
  const shell = { appId: "pair", session: "shell", command: ["sh", "-c", "hostname; exit 4"] };
  const refused = await errorOf(talk(user, shell, []));
  t.like(refused, { code: "InvalidArgument" });
  t.regex(refused.message, /plain, talks|talks, plain/);
  const { stderr } = await runSvc(["--socket", daemon.socketPath, "exec", "pair", "ls"]);
  t.regex(stderr, /service must be one of .*; such as: svc \w+ \S+ --service \w+[^\n]*\n/);
  const names = [];
  for (const service of ["plain", "talks"]) {
    const { outputs, text } = await talk(user, { ...shell, service }, []);
    t.like(outputs.at(-1)?.output, { case: "exit", value: { code: 4 } });
    names.push(text);
  }
  t.not(names[0], names[1], "each in its own container");
  const attach = { appId: "pair", session: "attach" };
  const noTerminal = await errorOf(talk(user, { ...attach, service: "plain" }, []));
  t.like(noTerminal, { reason: "not_possible" });
  t.regex(noTerminal.message, /service "plain" .*`tty: true`.*svc shell pair --service plain/);
  const talked = await talk(user, { ...attach, service: "talks" }, [
    [/^/, "hello\n"],
    [/got hello/, "end\n"],
  ]);
  t.like(talked.outputs.at(-1)?.output, { case: "exit", value: { code: 9 } });
  await apps.removeApp({ id: "pair" });
});

async function containerId(): Promise<string> {
  const listed = (await engineNow().request("GET", "/containers/json")).expect(200) as {
    Id: string;
    Labels: Record<string, string>;
  }[];
  return listed.find(({ Labels }) => Labels["svc.app"] === "shown")?.Id ?? "";
}

async function* endless<T>(first: T): AsyncGenerator<T> {
  yield first;
  await new Promise(() => undefined);
}

// The commands of the guide about terminals, with an app in a container and a compose project.

const image = "example.org/tour:1";

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  await engineNow().images.build(image, {
    entrypoint: ["/bin/sh", "-c", "echo it listens; read -r line; exec sleep 10000"],
    files: { "srv/of-the-image": "" },
    workdir: "/srv",
  });
});

/** A regular user installs and starts the app. */
async function startApp(
  daemon: TestDaemon,
  id: string,
  files: Readonly<Record<string, string>>,
): Promise<void> {
  const dir = join(daemon.dir, id);
  await mkdir(dir);
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  await using user = await daemon.as(nobody);
  const apps = user.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id });
}

/** Types a line into `attach`, which exits with the app. */
async function attachLine(daemon: TestDaemon, line: string, id: string): Promise<void> {
  const typed = typeLine(daemon, line);
  await eventually(() => assert.match(typed.shown(), /it listens/), 60_000);
  await daemon.client(AppService).stopApp({ id });
  await typed.ended;
}

dockerTest(`the guide's commands for terminals work with a container${needsDocker}`, async (t) => {
  t.timeout(240_000);
  await using daemon = await startDaemon({ config: engineNow().config });
  const manifest = `id: hello\nname: Hello\nversion: "1"\nconsole: true\ndocker: { image: "${image}" }\n`;
  await startApp(daemon, "hello", { "svc.yaml": manifest });
  for (const line of await linesAbout("hello", 4)) {
    if (line.startsWith("svc app attach")) {
      await attachLine(daemon, line, "hello");
      continue;
    }
    const typed = typeLine(daemon, line);
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    if (line.startsWith("echo ls")) t.is(typed.shown(), "of-the-image\n");
  }
  await daemon.client(AppService).removeApp({ id: "hello" });
});

composeTest(`the guide's commands for services work with a compose project${needsCompose}`, async (t) => {
  t.timeout(240_000);
  await using daemon = await startDaemon({ config: engineNow().config });
  const service = `{ image: "${image}", tty: true, stdin_open: true }`;
  await startApp(daemon, "team", {
    "svc.yaml": 'id: team\nname: Team\nversion: "1"\ncompose: { file: compose.yaml }\n',
    "compose.yaml": `services:\n  web: ${service}\n  api: ${service}\n`,
  });
  for (const line of await linesAbout("team", 2)) {
    if (line.startsWith("svc app attach")) {
      await attachLine(daemon, line, "team");
      continue;
    }
    const typed = typeLine(daemon, line);
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    t.regex(typed.shown(), /^uid=/m);
  }
  await daemon.client(AppService).removeApp({ id: "team" });
});
