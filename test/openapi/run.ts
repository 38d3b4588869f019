/**
 * `npm run check:api [-- Schemathesis's own options]`: Schemathesis makes requests of `openapi.json`, valid and broken ones,
 * sends them to a live daemon, and holds the answers against the same document: no status and no media type that is not
 * declared, no body that breaks its schema, no 5xx but 501 and 503, no rule that is not enforced.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { missing } from "../../.ci/optional.ts";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { freePort, writeRepository } from "../support/packages.ts";
import { pythonTools } from "../support/python-tools.ts";

/** Would end the run, something else on this machine, or the app that the others ask about. */
const leftOut = ["rebootSystem", "rotatePrimaryToken", "signalProcess", "removeApp"];
/** The same requests every time. */
const seed = "20250101";

const here = import.meta.dirname;
const [lack] = await missing({ python: "check:api is skipped." });
if (lack === undefined) process.exitCode = await check();
else console.log(lack);

async function check(): Promise<number> {
  const bin = await pythonTools(join(here, "requirements.txt"));
  // Wrong tokens by the hundred are asked for here.
  await using daemon = await startDaemon({
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
      ...leftOut.flatMap((operation) => ["--exclude-operation-id", operation]),
      "--phases",
      "examples,coverage,fuzzing",
      "--max-examples",
      "25",
      "--workers",
      "2",
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
    .filter((line) => line.includes("failed unexpectedly"));
  for (const line of broken) console.log(line);
  return code === 0 && broken.length === 0 ? 0 : 1;
}
