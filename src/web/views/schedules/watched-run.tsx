import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { ScheduleRun, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useAction } from "../../action.ts";
import { Failure } from "../../parts/failure.tsx";
import { plainLine } from "../../plain-text.ts";
import { scheduleTexts as says } from "../../texts/schedules.ts";
import { RunState } from "./schedule-words.tsx";

/** As much as the daemon keeps of a run. */
const mostShown = 64 * 1024;

interface Props {
  client: Client<typeof ScheduleService>;
  of: { readonly owner: number; readonly id: string };
  /** What is known of its runs. */
  runs: readonly ScheduleRun[];
  onDone: () => void;
}

/** A run in the foreground, with what it prints as it prints it. A run that it began ends with it. */
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
          output.value = (output.value + decoder.decode(event.value, { stream: true })).slice(-mostShown);
        if (event.case !== "run") continue;
        if (run.value === undefined) isOwn.value = started;
        run.value = event.value;
      }
    });
    onDone();
  };
  // Who stopped watching was not told how it ended.
  const told = run.value;
  const now = told?.status === "RUNNING" ? (runs.find(({ id }) => id === told.id) ?? told) : told;
  return (
    <>
      <div class="row">
        <button type="button" aria-busy={busy !== ""} onClick={() => void watch()}>
          {says.watch}
        </button>
        {busy !== "" && (
          <button type="button" onClick={cancel}>
            {isOwn.value ? says.watchCancel : says.watchLeave}
          </button>
        )}
        <span class="quiet">{says.watchHint}</span>
      </div>
      <Failure says={failure} />
      {now !== undefined && (
        <section class="card" aria-labelledby="watched">
          <h2 id="watched">{says.watched}</h2>
          <p role="status">
            <RunState run={now} /> {!isOwn.value && says.wentAlready}
          </p>
          <Failure says={now.error} />
          <pre class="command" tabIndex={0} aria-label={says.output}>
            {output.value === "" ? says.noOutput : output.value.split("\n").map(plainLine).join("\n")}
          </pre>
        </section>
      )}
    </>
  );
}
