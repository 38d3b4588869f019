/** The README's first tour, as a new user would type it: each command and its output. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { createHelloRepository } from "../../examples/try/hello-repository.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { readSection } from "../support/docs.ts";
import { main } from "../support/svc-main.ts";

interface Step {
  readonly line: string;
  /** The output shown below it. */
  readonly shown: string;
}

const examples = fileURLToPath(new URL("../../examples", import.meta.url));

async function steps(): Promise<Step[]> {
  const [, block = ""] = /^```console\n(.*?)^```/ms.exec(await readSection("README.md", "Try it")) ?? [];
  return block
    .split(/^\$ /m)
    .slice(1)
    .map((part) => ({ line: part.slice(0, part.indexOf("\n")), shown: part.slice(part.indexOf("\n") + 1) }));
}

/** In a shell, with both outputs in their order. */
function type(dir: string, socketPath: string, line: string): Promise<string> {
  const npm = `npm() { shift 4; "${process.execPath}" "${main}" --socket "${socketPath}" "$@"; }\n`;
  const command = line.startsWith("curl ") ? line.replace("curl ", "curl --silent ") : line;
  return new Promise((resolve) => {
    execFile("sh", ["-c", `exec 2>&1\n${npm}${command}`], { cwd: dir }, (_, output) => resolve(output));
  });
}

/** Sizes, times and column widths vary; a terminal shows progress in one line and removes it. */
function steadySizes(text: string): string {
  return text
    .replaceAll(/\d+(?:\.\d+)? (?:B|KiB|MiB)\b/g, "SIZE")
    .replaceAll(/\b(?:\d+m )?\d+[sm]$/gm, "TIME")
    .replaceAll(/ +/g, " ")
    .replaceAll(/^\w+ \S+: .*\n/gm, "");
}

/** Types every command of the tour in a new directory, and compares the output. */
async function takeTour(t: ExecutionContext): Promise<void> {
  await using daemon = await startDaemon();
  await mkdir(join(daemon.dir, ".svc"));
  await createHelloRepository(examples, join(daemon.dir, ".svc/hello.git"));
  const apps = daemon.client(AppService);
  const portOf = async (id: string): Promise<string> =>
    String((await apps.listAppPorts({ id }).catch(() => undefined))?.ports[0]?.port);
  const tour = await steps();
  t.true(tour.length >= 12, "the section contains commands");
  let port = "8080";
  for (const { line, shown } of tour) {
    const output = await type(daemon.dir, daemon.socketPath, line);
    port = line.includes("rm hello") ? port : await portOf("hello");
    const copy = await portOf("hello-2");
    // The default in the settings is unchanged.
    const expected = shown.replaceAll(/\b(8080|8081)\b(?! +TCP)/g, (shownPort) =>
      shownPort === "8080" ? port : copy,
    );
    t.is(steadySizes(output), steadySizes(expected), line);
  }
  t.deepEqual((await apps.listApps({})).apps, []);
}

test("the README's tour has the documented output while another process uses its port", async (t) => {
  t.timeout(3 * 60_000);
  const other = createServer().listen(8080, "127.0.0.1").unref();
  // If the port is already in use, that is sufficient.
  await once(other, "listening").catch(() => undefined);
  await takeTour(t);
  other.close();
});
