/** Listening beyond this machine without TLS is said, once at each start. */
import test from "ava";
import { parseConfig } from "../../src/daemon/config.ts";
import { exposureWarning } from "../../src/daemon/exposure.ts";
import { startDaemon } from "../support/daemon.ts";

const warningOf = (listen: string): string | undefined =>
  exposureWarning(parseConfig({ api: { listen } }, "/etc/svc/svc.toml", { uid: 0, home: "/root", env: {} }));

for (const listen of ["127.0.0.1:8420", "127.8.0.1:1", "localhost:8420", "[::1]:8420"]) {
  test(`${listen} is this machine's own`, (t) => {
    t.is(warningOf(listen), undefined);
  });
}

for (const listen of ["0.0.0.0:8420", "[::]:8420", "192.0.2.7:8420", "host.example:8420"]) {
  test(`${listen} is said to be without TLS`, (t) => {
    t.regex(warningOf(listen) ?? "", /without TLS/);
    t.true(warningOf(listen)?.includes(`listen is ${listen},`));
  });
}

test("a daemon that others reach warns once", async (t) => {
  const warnings = (log: string): number => log.split("without TLS").length - 1;
  await using quiet = await startDaemon();
  t.is(warnings(quiet.log()), 0);
  await using exposed = await startDaemon({ listen: "0.0.0.0:0" });
  t.is(warnings(exposed.log()), 1);
});
