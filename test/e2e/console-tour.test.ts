/** The commands of the guide about terminals, as a new user would type them. */
import { fileURLToPath } from "node:url";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort } from "../support/packages.ts";
import { linesAbout, typeLine } from "./support/terminal-lines.ts";

test("the guide's commands for terminals work as written", async (t) => {
  await using daemon = await startDaemon();
  const hello = fileURLToPath(new URL("../../examples/hello", import.meta.url));
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: hello, settings: { port: await freePort() } });
  await apps.startApp({ id: "hello" });
  for (const line of await linesAbout("hello", 4)) {
    const typed = typeLine(daemon, line);
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    // Nothing is typed there: it exits by itself.
    if (line.startsWith("svc app attach")) t.regex(typed.shown(), /Welcome to Node\.js/);
    if (line.startsWith("echo ls")) t.regex(typed.shown(), /^svc\.yaml$/m);
  }
});
