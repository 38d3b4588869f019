/** Terminals inside of containers. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService, type ConsoleOutput } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon, type UserDoor } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";

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
}

/** Opens a terminal, types each piece once the pattern before it has shown, and reads to its end. */
async function talk(
  door: Pick<UserDoor, "client">,
  first: { appId: string; session: string; service?: string; command?: string[] },
  pieces: readonly (readonly [RegExp, string])[],
): Promise<Shown> {
  const outputs: ConsoleOutput[] = [];
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
    await eventually(() => assert.equal(outputs.at(-1)?.output.case, "exit"), 20_000);
  }
  for await (const output of door.client(AppService, "grpc").attachConsole(inputs())) outputs.push(output);
  return { outputs, text: text() };
}

dockerTest(
  `a shell in a container, as its user, with its size and its exit code${needsDocker}`,
  async (t) => {
    await using daemon = await startDaemon({ config: `[docker]\nsocket = "${engineNow().socket}"` });
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
      [/sum=42/, "sleep 1000\n"],
      [/sleep 1000/, "\x03"],
      [/\^C/, "exit 7\n"],
    ]);
    t.regex(talked.text, /31 91/);
    t.regex(talked.text, /^65534\r$/m);
    t.like(talked.outputs.at(-1)?.output, { case: "exit", value: { code: 7 } });

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
      if (output.case === "opened") break;
    }
    left.abort();
    await eventually(async () => assert.equal(await isSleeping(), false), 20_000);
    await apps.removeApp({ id: "shown" });
  },
);

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
