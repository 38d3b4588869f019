/**
 * `npm run check:api [-- OPTIONS OF SCHEMATHESIS]`: Schemathesis generates valid and broken requests from `openapi.json`, sends them
 * to a real daemon, and compares the responses with the document. A response fails if its status or media type is not
 * declared, its body does not match the schema, a broken request succeeds, or the status is 5xx other than 501 and 503. Needs root, to
 * protect the files of this host from requests that change files.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempDisposable } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { missing } from "../../.ci/optional.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writeRepository } from "../support/packages.ts";
import { pythonTools } from "../support/python-tools.ts";

/** Operations that would end the run, another process on this host, or the app that other operations need. */
const excluded = ["rebootSystem", "rotatePrimaryToken", "signalProcess", "removeApp"];
/** Makes the requests the same in every run. */
const seed = "20250101";

const here = import.meta.dirname;
const [missingTool] = await missing({
  root: "check:api is skipped, because only root can make the host's files read-only for it.",
  python: "check:api is skipped.",
});
if (missingTool === undefined) process.exitCode = await check();
else console.log(missingTool);

async function check(): Promise<number> {
  const bin = await pythonTools(join(here, "requirements.txt"));
  await using dir = await mkdtempDisposable(join(tmpdir(), "svc-api-"));
  // The requests include hundreds of wrong tokens.
  await using daemon = await startDaemon({
    dir: dir.path,
    launcher: ["unshare", "--mount", "sh", join(here, "read-only-host.sh"), dir.path],
    config: "[api.limits]\ntoken_failure_budget = 1000000\ntoken_failure_refill_per_sec = 1000000\n",
  });
  const repository = join(daemon.dir, "web.git");
  const spec = await writeRepository(repository, await freePort(), [{}]);
  await daemon.client(AppService).installApp({ spec });
  const action = { type: "http", url: "http://127.0.0.1:1/" };
  await daemon.client(ScheduleService).upsertSchedule({ id: "nightly", trigger: "daily@03:00", action });
  const child = spawn(
    join(bin, "schemathesis"),
    [
      "--config-file",
      join(here, "schemathesis.toml"),
      "run",
      join(here, "../../openapi/openapi.json"),
      "--url",
      `http://127.0.0.1:${daemon.port}`,
      "--header",
      `Authorization: Bearer ${daemon.token}`,
      ...excluded.flatMap((operation) => ["--exclude-operation-id", operation]),
      "--phases",
      "examples,coverage,fuzzing",
      "--max-examples",
      "25",
      // Python 3.11 sometimes fails to parse source code in two threads ("AST constructor recursion depth mismatch").
      "--workers",
      "1",
      "--seed",
      seed,
      "--continue-on-failure",
      "--no-color",
      ...process.argv.slice(2),
    ],
    {
      stdio: ["ignore", "inherit", "inherit"],
      env: { ...process.env, SCHEMATHESIS_HOOKS: "schemathesis_hooks", PYTHONPATH: here },
      cwd: daemon.dir,
    },
  );
  const [code] = (await once(child, "exit")) as [number | null];
  const broken = daemon
    .log()
    .split("\n")
    .filter((line) => line.includes("unexpected error in"));
  for (const line of broken) console.log(line);
  return code === 0 && broken.length === 0 ? 0 : 1;
}
