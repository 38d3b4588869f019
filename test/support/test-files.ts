/** Which files `npm test` runs, in which order, and which of them together. */
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { readTestTimes } from "./test-times.ts";

const root = join(import.meta.dirname, "../..");

/** Imports of what starts a daemon, an engine or a systemd of its own, and folders whose tests do so by other ways. */
const slowImports =
  /from "[^"]*support\/(?:daemon[a-z-]*|docker[a-z-]*|compose-test|container-tests|systemd|s3-server)\.ts"/;
const slowFolders = ["attack", "build", "clients", "console", "e2e", "examples", "faults", "files", "fuzz"];
/** Others that take long, so that a fresh checkout is quick, too. */
const slowFiles = [
  "test/audit/audit-trail.test.ts",
  "test/backups/age.test.ts",
  "test/cli/hostile-daemon.test.ts",
  "test/cli/output.test.ts",
  "test/cli/package.test.ts",
  "test/cli/routing.test.ts",
  "test/cli/terminal.test.ts",
  "test/codegen/generation.test.ts",
  "test/docker/watched-engine.test.ts",
  "test/host/host-metrics.test.ts",
  "test/identity/archive-property.test.ts",
  "test/identity/copy-tree.test.ts",
  "test/identity/helper-life.test.ts",
  "test/identity/hostile-archives.test.ts",
  "test/identity/hostile-trees.test.ts",
  "test/identity/privileges.test.ts",
  "test/identity/run-command.test.ts",
  "test/packages/git-limits.test.ts",
  "test/packages/git-packages.test.ts",
  "test/rest/refusals.test.ts",
  "test/rpc/call-limits.test.ts",
  "test/rpc/message-structure.test.ts",
  "test/rpc/pipeline.test.ts",
  "test/runtimes/app-terminal.test.ts",
  "test/runtimes/build-context.test.ts",
  "test/runtimes/outliving.test.ts",
  "test/runtimes/process-runtime.test.ts",
  "test/scheduler/clock/due-jobs.test.ts",
  "test/scheduler/clock/evaluator-year.test.ts",
  "test/scheduler/jobs/job-registry.test.ts",
  "test/scheduler/jobs/kept-views.test.ts",
  "test/scheduler/runs/run-log.test.ts",
  "test/scheduler/runs/runner.test.ts",
  "test/scheduler/trigger/oracle.test.ts",
  "test/scheduler/trigger/whole-year.test.ts",
  "test/store/corruption.test.ts",
  "test/store/migrations.test.ts",
  "test/store/processes.test.ts",
  "test/store/writes.test.ts",
  "test/support/docker.test.ts",
  "test/tokens/rotation-crash.test.ts",
  "test/tokens/token-states.test.ts",
  "test/transport/first-frames.test.ts",
  "test/transport/forged.test.ts",
  "test/transport/full-bodies.test.ts",
  "test/transport/gone-consoles.test.ts",
  "test/transport/limits.test.ts",
  "test/transport/slow-handlers.test.ts",
  "test/transport/slow-peers.test.ts",
  "test/transport/unread-body.test.ts",
  "test/transport/unreadable.test.ts",
  "test/web/manage.test.ts",
];

/** What takes longer is not quick, milliseconds. */
const quickMs = 3_000;

/** So many quick ones share an AVA, whose own start takes a second of a processor; and so many of the others that are not long. */
const batchFiles = 24;
const slowBatchFiles = 8;

/** What takes longer has an AVA of its own, and begins first, so that the last of them keeps nobody waiting; milliseconds. */
const longMs = 15_000;
/** Those that take longest, the longest first, so that a fresh checkout knows it, too. */
const longFiles = [
  "test/e2e/swarm-stacks.test.ts",
  "test/faults/cut-starts.test.ts",
  "test/attack/attack.test.ts",
  "test/e2e/volume-backups.test.ts",
  "test/e2e/swarm.test.ts",
  "test/e2e/upgrade-pause.test.ts",
  "test/e2e/app-move.test.ts",
  "test/e2e/tokens.test.ts",
  "test/examples/catalogue.test.ts",
  "test/files/deaths.test.ts",
  "test/runtimes/compose-runtime.test.ts",
  "test/faults/engine-table.test.ts",
  "test/e2e/compose-database.test.ts",
  "test/files/random-deaths.test.ts",
  "test/e2e/backups.test.ts",
  "test/e2e/compose-data.test.ts",
  "test/faults/reboot.test.ts",
  "test/e2e/backup-policies.test.ts",
  "test/web/page.test.ts",
  "test/build/debian-package.test.ts",
  "test/packages/git-limits.test.ts",
  "test/backups/s3-storage.test.ts",
  "test/e2e/upgrade-trial.test.ts",
  "test/e2e/container-apps.test.ts",
  "test/files/archives.test.ts",
  "test/faults/disk-full.test.ts",
  "test/transport/cut-uploads.test.ts",
  "test/web/everybody.test.ts",
  "test/runtimes/docker-runtime.test.ts",
  "test/faults/jobs.test.ts",
  "test/faults/paused-apps.test.ts",
  "test/e2e/scheduler.test.ts",
  "test/runtimes/outliving.test.ts",
  "test/web/schedules.test.ts",
  "test/e2e/service-apps.test.ts",
  "test/console/hostile.test.ts",
  "test/e2e/docker-service.test.ts",
  "test/faults/kill-daemon.test.ts",
  "test/console/sessions.test.ts",
  "test/faults/many-jobs.test.ts",
  "test/faults/long-lists.test.ts",
  "test/console/containers.test.ts",
  "test/web/machine.test.ts",
  "test/faults/supervisors.test.ts",
  "test/faults/life.test.ts",
  "test/web/tasks.test.ts",
  "test/e2e/s3-backups.test.ts",
  "test/e2e/nodes-ssh.test.ts",
  "test/e2e/compose-export.test.ts",
  "test/runtimes/build-context.test.ts",
  "test/web/tour.test.ts",
  "test/runtimes/docker-faults.test.ts",
  "test/e2e/main-job.test.ts",
  "test/e2e/compose-clone.test.ts",
  "test/web/manage.test.ts",
  "test/attack/volumes.test.ts",
];

/**
 * The files to run, those together that one AVA runs: first the long ones, each alone, the longest before the others; then those
 * that start daemons and engines, a few at a time; then the quick ones, which are all where it shall be quick.
 */
export async function chooseTestFiles(isQuick: boolean): Promise<string[][]> {
  const found = (await Array.fromAsync(glob("test/**/*.test.ts", { cwd: root }))).sort();
  const times = await readTestTimes();
  const timeOf = (file: string): number => {
    const at = longFiles.indexOf(file);
    return times[file] ?? (at === -1 ? 0 : longMs + longFiles.length - at);
  };
  const isSlow = async (file: string): Promise<boolean> =>
    slowFiles.includes(file) ||
    slowFolders.includes(file.split("/")[1] ?? "") ||
    slowImports.test(await readFile(join(root, file), "utf8"));
  const slow = await Promise.all(found.map(isSlow));
  const quick = found.filter((file, at) => slow[at] !== true && timeOf(file) <= quickMs);
  const batches = batchesOf(quick, batchFiles);
  if (isQuick) return batches;
  const others = found.filter((file) => !quick.includes(file));
  const long = others.filter((file) => timeOf(file) > longMs);
  return [
    ...long.toSorted((one, other) => timeOf(other) - timeOf(one)).map((file) => [file]),
    ...batchesOf(
      others.filter((file) => !long.includes(file)),
      slowBatchFiles,
    ),
    ...batches,
  ];
}

/** In turns, so that those of one folder, which often wait for the same things, are in different ones. */
function batchesOf(files: readonly string[], size: number): string[][] {
  const count = Math.ceil(files.length / size);
  return Array.from({ length: count }, (_, at) => files.filter((_file, index) => index % count === at));
}
