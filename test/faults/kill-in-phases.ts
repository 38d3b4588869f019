/** Kills the daemon in each phase that an operation reports, and checks the result. */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { OperationService, type Operation } from "../../gen/svc/v1/operation_pb.ts";
import type { TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";

export interface PhasedWork {
  /** Creates what the operation needs; called before each run. */
  readonly prepare?: () => Promise<unknown>;
  readonly start: () => Promise<{ detached?: Operation | undefined }>;
  /** Further checks; called after each kill, when the daemon has settled. */
  readonly check?: (operation: Operation) => Promise<unknown>;
}

export interface PhaseKill {
  readonly phase: string;
  readonly state: string;
}

const settleMs = 60_000;

/**
 * Runs the operation once completely to learn its phases, then kills the daemon at its start and in each phase. Apps
 * that the operation created are removed after each run. @param stays IDs of existing apps, which must keep their state
 */
export async function killInPhases(
  daemon: TestDaemon,
  kind: string,
  work: PhasedWork,
  stays: readonly string[],
): Promise<PhaseKill[]> {
  const operations = daemon.client(OperationService);
  const apps = daemon.client(AppService);
  const begin = async (): Promise<string> => {
    await work.prepare?.();
    const { detached } = await work.start();
    assert.ok(detached);
    return detached.id;
  };
  const stateOf = async (): Promise<unknown[]> =>
    (await apps.listApps({})).apps.filter(({ id }) => stays.includes(id)).map(({ id, state }) => [id, state]);
  const clear = async (): Promise<void> => {
    for (const { id } of (await apps.listApps({})).apps)
      if (!stays.includes(id)) await apps.removeApp({ id });
  };

  const whole = await finish(daemon, await begin());
  assert.equal(whole.state, "SUCCEEDED", `${kind}: ${whole.error?.message ?? ""}`);
  const phases = ["", ...new Set(whole.log.map(({ phase }) => phase).filter((phase) => phase !== ""))];
  await clear();
  const kills: PhaseKill[] = [];
  for (const phase of phases) {
    const name = `${kind} killed in phase "${phase}"`;
    const id = await begin();
    const before = await stateOf();
    await untilPhase(daemon, id, phase);
    await daemon.kill();
    await daemon.restart();
    await eventually(async () => {
      const busy = (await apps.listApps({})).apps.filter(({ operation }) => operation !== undefined);
      assert.deepEqual(
        busy.map((app) => app.id),
        [],
        name,
      );
      assert.deepEqual(await stateOf(), before, `${name}: the apps are unchanged`);
    }, settleMs);
    const { operations: listed } = await operations.listOperations({ limit: 1000 });
    const operation = listed.find((each) => each.id === id);
    assert.ok(operation, `${name}: it is not listed`);
    const { state, error, endedAt } = operation;
    assert.ok(endedAt, name);
    assert.ok(state === "SUCCEEDED" || state === "INTERRUPTED", `${name}: ${state} ${error?.message ?? ""}`);
    if (state === "INTERRUPTED")
      assert.match(error?.message ?? "", /^the daemon died before this finished/, name);
    assert.ok(!listed.some((each) => each.state === "RUNNING"), `${name}: an operation runs`);
    await work.check?.(operation);
    for (const app of (await apps.listApps({})).apps.filter((each) => !stays.includes(each.id)))
      assert.equal(app.state, "STOPPED", `${name}: ${app.id} has a partial result: ${app.stateReason}`);
    await clear();
    await eventually(() => requireNothingLeft(daemon, stays, name), settleMs);
    kills.push({ phase, state });
  }
  return kills;
}

async function finish(daemon: TestDaemon, id: string): Promise<Operation> {
  for await (const { event } of daemon.client(OperationService).streamOperation({ id }))
    if (event.case === "operation" && event.value.state !== "RUNNING") break;
  return daemon.client(OperationService).getOperation({ id });
}

/** Until the phase has started, or the operation has finished: a short phase may pass unseen. */
async function untilPhase(daemon: TestDaemon, id: string, phase: string): Promise<void> {
  if (phase === "") return;
  for await (const { event } of daemon.client(OperationService).streamOperation({ id })) {
    if (event.case === "line" && event.value.phase === phase) return;
    if (event.case === "operation" && event.value.phase === phase) return;
  }
}

/** Asserts that only the remaining apps' directories, archives and running operations exist. */
async function requireNothingLeft(daemon: TestDaemon, stays: readonly string[], name: string): Promise<void> {
  const { storeDir } = daemon;
  const directories = await readdir(join(storeDir, "apps"));
  assert.deepEqual(directories.toSorted(), [...stays].toSorted(), `${name}: directories of apps`);
  const runs = await readdir(join(storeDir, "run"));
  assert.deepEqual(
    runs.filter((id) => !stays.includes(id)),
    [],
    `${name}: directories of runs`,
  );
  using store = new DatabaseSync(join(storeDir, "svc.db"), { readOnly: true });
  const row = store.prepare("SELECT count(*) AS n FROM backup_archives WHERE is_whole = 0").get();
  assert.equal(Number(row?.["n"]), 0, `${name}: incomplete archives`);
  const backups = daemon.client(BackupService);
  for (const id of stays) {
    const { backups: archives } = await backups.listBackups({ appId: id });
    const files = await readdir(join(storeDir, "backups", id)).catch(() => []);
    const [listed, found] = [archives.map((archive) => archive.name).toSorted(), files.toSorted()];
    assert.deepEqual(found, listed, `${name}: files of archives`);
    for (const { appId, storage, name: archive } of archives.slice(0, 1))
      await backups.verifyBackup({ appId, storage, name: archive });
  }
}
