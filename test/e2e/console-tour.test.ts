/** The lines of the guide about terminals, as a new user would type them. */
import assert from "node:assert/strict";
import { appendFile, cp } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { linesAbout, typeLine } from "./support/terminal-lines.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

test("the guide's lines about terminals work as they are written", async (t) => {
  await using daemon = await startDaemon();
  const hello = join(daemon.dir, "hello");
  await cp(join(root, "examples/hello"), hello, { recursive: true });
  await appendFile(join(hello, "svc.yaml"), "\nconsole: true\n");
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: hello, settings: { port: await freePort() } });
  await apps.startApp({ id: "hello" });
  for (const line of await linesAbout("hello", 4)) {
    const typed = typeLine(daemon, line);
    if (line.startsWith("svc app attach")) {
      await eventually(() => assert.match(typed.shown(), /listens on/), 30_000);
      await apps.stopApp({ id: "hello" });
      await typed.ended;
      continue;
    }
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    if (line.startsWith("echo ls")) t.regex(typed.shown(), /^svc\.yaml$/m);
  }
});
