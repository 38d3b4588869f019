import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { ScheduleRun, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useAction } from "../../action.ts";
import { Failure } from "../../parts/failure.tsx";
import { plainLine } from "../../plain-text.ts";
import { scheduleTexts as labels } from "../../texts/schedules.ts";
import { RunState } from "./schedule-text.tsx";

/** The daemon stores at most this much output of a run, in bytes. */
const maxShown = 64 * 1024;

interface Props {
  client: Client<typeof ScheduleService>;
  of: { readonly owner: number; readonly id: string };
  /** Recent runs of the job. */
  runs: readonly ScheduleRun[];
  onDone: () => void;
}

/** A run with its live output. A run started here is canceled when this view unmounts. */
export function WatchedRun({ client, of, runs, onDone }: Props) {
  const { busy, failure, perform, cancel } = useAction();
  const output = useSignal("");
  const run = useSignal<ScheduleRun | undefined>(undefined);
  const isOwn = useSignal(true);
  const watch = async (): Promise<void> => {
    await perform("watch", async (signal) => {
      const decoder = new TextDecoder();
      [output.value, run.value] = ["", undefined];
      for await (const { event, started } of client.runScheduleStream(of, { signal })) {
        if (event.case === "output")
          output.value = (output.value + decoder.decode(event.value, { stream: true })).slice(-maxShown);
        if (event.case !== "run") continue;
        if (run.value === undefined) isOwn.value = started;
        run.value = event.value;
      }
    });
    onDone();
  };
  // After watching was stopped, the result comes from the list of runs.
  const watched = run.value;
  const now = watched?.status === "RUNNING" ? (runs.find(({ id }) => id === watched.id) ?? watched) : watched;
  return (
    <>
      <div class="row">
        <button type="button" aria-busy={busy !== ""} onClick={() => void watch()}>
          {labels.watch}
        </button>
        {busy !== "" && (
          <button type="button" onClick={cancel}>
            {isOwn.value ? labels.watchCancel : labels.watchLeave}
          </button>
        )}
        <span class="quiet">{labels.watchHint}</span>
      </div>
      <Failure message={failure} />
      {now !== undefined && (
        <section class="card" aria-labelledby="watched">
          <h2 id="watched">{labels.watched}</h2>
          <p role="status">
            <RunState run={now} /> {!isOwn.value && labels.wentAlready}
          </p>
          <Failure message={now.error} />
          <pre class="command" tabIndex={0} aria-label={labels.output}>
            {output.value === "" ? labels.noOutput : output.value.split("\n").map(plainLine).join("\n")}
          </pre>
        </section>
      )}
    </>
  );
}
