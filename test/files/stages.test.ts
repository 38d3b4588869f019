/** Records of temporary files of file operations: who removes them, and when. */
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import { FileStages } from "../../src/files/file-stages.ts";
import type { UserHelpers } from "../../src/run-as/user-helpers.ts";
import type { Stage } from "../../src/run-as/host-work.ts";
import { currentExecutor, type Executor } from "../../src/store/executors.ts";
import { temporaryStore } from "../store/support/temporary-store.ts";

async function world() {
  const { store, ...rest } = await temporaryStore();
  const discarded: Stage[] = [];
  const warnings: unknown[] = [];
  const userHelpers = {
    hostFiles: (uid: number) =>
      uid === 404
        ? Promise.reject(new SvcError("not_found", "there is no such user"))
        : Promise.resolve({
            discard: (stage: Stage) => {
              discarded.push(stage);
              return Promise.resolve();
            },
          }),
  } as unknown as UserHelpers;
  const say = (...said: unknown[]): void => void warnings.push(said);
  const log = { warn: say, error: say };
  const stagesOf = (executor: Executor) => new FileStages({ store, executor, userHelpers, log });
  /** Starts another daemon over the same store; resolves when it has cleaned up. */
  const sweep = async (): Promise<void> => {
    await using stages = stagesOf(await currentExecutor());
    stages.start();
  };
  const kept = () => store.all<{ name: string }>("SELECT name FROM file_stages").map(({ name }) => name);
  return { ...rest, discarded, warnings, stagesOf, sweep, kept };
}

test("temporary files of an exited process are removed, and those of a running one are not", async (t) => {
  await using w = await world();
  const own = await currentExecutor();
  // Another process had this PID before.
  const ended = { ...own, startTicks: own.startTicks + 1 };
  const stage = (name: string, uid = 5): Stage => ({ name, uid, beside: ["/srv/a", "/srv/b/x"] });
  await w.stagesOf(ended).keep(stage("left"));
  await w.stagesOf(ended).keep(stage("nobody's", 404));
  await w.stagesOf(own).keep(stage("working"));
  await w.sweep();
  t.deepEqual(w.discarded, [stage("left")]);
  t.deepEqual(w.kept(), ["working"]);
  t.is(w.warnings.length, 1, "neither is requested again");
  await w.stagesOf(own).forget("working");
  t.deepEqual(w.kept(), []);
});
