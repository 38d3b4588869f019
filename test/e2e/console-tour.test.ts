/** The lines of the README about terminals, as a new user would type them. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { appendFile, cp, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

async function linesOfReadme(): Promise<string[]> {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const section = /^## Terminals\n(.*?)^## /ms.exec(readme)?.[1] ?? "";
  return [...section.matchAll(/^\$ (.*)$/gm)].map(([, line = ""]) => line.replace(/ {2,}#.*$/, ""));
}

test("the README's lines about terminals work as they are written", async (t) => {
  await using daemon = await startDaemon();
  const hello = join(daemon.dir, "hello");
  await cp(join(root, "examples/hello"), hello, { recursive: true });
  await appendFile(join(hello, "svc.yaml"), "\nconsole: true\n");
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: hello, settings: { port: await freePort() } });
  await apps.startApp({ id: "hello" });
  const shown = { text: "" };
  const type = (line: string): Promise<number> => {
    const script = `svc() { "${process.execPath}" "${main}" --socket "${daemon.socketPath}" "$@"; }\n`;
    return new Promise((resolve) => {
      const child = execFile("sh", ["-c", script + line], (error) =>
        resolve(error === null ? 0 : Number(error.code)),
      );
      shown.text = "";
      for (const output of [child.stdout, child.stderr])
        output?.on("data", (text: string) => (shown.text += text));
      child.stdin?.end();
    });
  };
  const lines = await linesOfReadme();
  assert.ok(lines.length >= 4, "the section has its lines");
  for (const line of lines) {
    const ended = type(line);
    if (line.startsWith("svc app attach")) {
      await eventually(() => assert.match(shown.text, /listens on/), 30_000);
      await apps.stopApp({ id: "hello" });
      await ended;
      continue;
    }
    t.is(await ended, 0, `${line}: ${shown.text}`);
    if (line.startsWith("echo ls")) t.regex(shown.text, /^svc\.yaml$/m);
  }
});
