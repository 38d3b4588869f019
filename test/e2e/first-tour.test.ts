/** The tour that the README begins with, as a new user would type it: each line, and what it shows. */
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { createHelloRepository } from "../../examples/try/hello-repository.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { readSection } from "../support/docs.ts";
import { freePort } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

const examples = fileURLToPath(new URL("../../examples", import.meta.url));

interface Step {
  readonly line: string;
  /** What the page shows below it. */
  readonly shown: string;
}

async function steps(): Promise<Step[]> {
  const [, block = ""] = /^```console\n(.*?)^```/ms.exec(await readSection("README.md", "Try it")) ?? [];
  return block
    .split(/^\$ /m)
    .slice(1)
    .map((part) => ({ line: part.slice(0, part.indexOf("\n")), shown: part.slice(part.indexOf("\n") + 1) }));
}

/** In a shell, with what is on either of its outputs in its order. */
function type(dir: string, socketPath: string, line: string): Promise<string> {
  const npm = `npm() { shift 4; "${process.execPath}" "${main}" --socket "${socketPath}" "$@"; }\n`;
  const command = line.startsWith("curl ") ? line.replace("curl ", "curl --silent ") : line;
  return new Promise((resolve) => {
    execFile("sh", ["-c", `exec 2>&1\n${npm}${command}`], { cwd: dir }, (_, output) => resolve(output));
  });
}

/** Sizes, times and the width of columns are those of the moment; a terminal shows what goes on in one line, and takes it away. */
function steady(text: string): string {
  return text
    .replaceAll(/\d+(?:\.\d+)? (?:B|KiB|MiB)\b/g, "SIZE")
    .replaceAll(/\b(?:\d+m )?\d+[sm]$/gm, "TIME")
    .replaceAll(/ +/g, " ")
    .replaceAll(/^\w+ \S+: \w+ · .*\n/gm, "");
}

test("the README's tour shows what it says", async (t) => {
  t.timeout(3 * 60_000);
  const port = await freePort();
  await using daemon = await startDaemon();
  await mkdir(join(daemon.dir, ".svc"));
  await createHelloRepository(examples, join(daemon.dir, ".svc/hello.git"));
  const apps = daemon.client(AppService);
  const tour = await steps();
  t.true(tour.length >= 12, "the section has its lines");
  for (const { line, shown } of tour) {
    const typed = line
      .replace("--tag v1.0.0", `$& --set port=${port}`)
      .replace("127.0.0.1:8080", `127.0.0.1:${port}`);
    const output = await type(daemon.dir, daemon.socketPath, typed);
    const copy = (await apps.listAppPorts({ id: "hello-2" }).catch(() => undefined))?.ports[0]?.port;
    // The package's own default stays.
    const wanted = shown
      .replaceAll(/8080(?! +TCP)/g, String(port))
      .replaceAll(/\b8081\b/g, String(copy ?? 8081));
    t.is(steady(output), steady(wanted), line);
  }
  t.deepEqual(
    (await apps.listApps({})).apps.map(({ id }) => id),
    ["hello-2"],
  );
  await apps.removeApp({ id: "hello-2" });
});
