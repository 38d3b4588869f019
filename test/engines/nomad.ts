/** A real Nomad server without clients: its own tool validates jobs. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { engineProgram } from "./engine-programs.ts";
import { startProgram } from "./kubernetes.ts";

const upTimeoutMs = 60_000;

export interface Nomad extends AsyncDisposable {
  /** @param job in the API's JSON @returns the reason of a rejection, or its warnings */
  refuses(job: string): Promise<string | undefined>;
}

export async function startNomad(): Promise<Nomad> {
  const program = await engineProgram("nomad");
  await using made = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "svc-nomad-"));
  made.defer(() => rm(dir, { recursive: true, force: true }));
  const [http, rpc, serf] = [await freePort(), await freePort(), await freePort()];
  const config = {
    ...{ data_dir: join(dir, "data"), bind_addr: "127.0.0.1", ports: { http, rpc, serf } },
    advertise: { http: "127.0.0.1", rpc: "127.0.0.1", serf: "127.0.0.1" },
    server: { enabled: true, bootstrap_expect: 1 },
    disable_update_check: true,
  };
  await writeFile(join(dir, "agent.json"), JSON.stringify(config));
  const agent = made.use(startProgram(program, ["agent", `-config=${join(dir, "agent.json")}`]));
  const address = `http://127.0.0.1:${http}`;
  await eventually(async () => {
    assert.equal(agent.child.exitCode, null, agent.output());
    const leader = (await (await fetch(`${address}/v1/status/leader`)).json()) as string;
    assert.notEqual(leader, "");
  }, upTimeoutMs);
  const owned = made.move();
  return {
    async refuses(job) {
      const file = join(dir, "job.json");
      await writeFile(file, job);
      const args = ["job", "validate", `-address=${address}`, "-json", file];
      try {
        const { stdout } = await promisify(execFile)(program, args);
        return stdout.trim() === "Job validation successful" ? undefined : stdout.trim();
      } catch (error) {
        const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
        return `${stdout}${stderr}`.trim();
      }
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
