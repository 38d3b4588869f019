import type { Client } from "@connectrpc/connect";
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Schedule, ScheduleRun, ScheduleService } from "../../../../gen/svc/v1/schedule_pb.ts";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import type { NodeView } from "../../node-view.ts";
import { ConfirmButton } from "../../parts/confirm.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainLine, plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { scheduleTexts as labels } from "../../texts/schedules.ts";
import { switched } from "./schedule-draft.ts";
import { ScheduleForm } from "./schedule-form.tsx";
import { ActionSummary, NextRun, RunState, secondsOf } from "./schedule-text.tsx";
import { WatchedRun } from "./watched-run.tsx";

const maxRuns = 20;

interface Props {
  client: Client<typeof ScheduleService>;
  node: NodeView;
  of: { readonly owner: number; readonly id: string };
}

/** The form for one schedule, with its values at opening. */
export function ChangeSchedule({ client, node, of }: Props) {
  const { value, failure } = useLive(node, [], (signal) => client.getSchedule(of, { signal }), [
    client,
    of.owner,
    of.id,
  ]);
  if (value !== undefined) return <ScheduleForm client={client} node={node} before={value} />;
  return (
    <>
      <a class="back" href={pathTo("schedules")}>
        {labels.all}
      </a>
      <Heading title={labels.editTitle(plainText(of.id))} />
      {failure === "" ? <p>{texts.loading}</p> : <Failure message={failure} />}
    </>
  );
}

/** One schedule with its runs and actions. */
export function ScheduleView({ client, node, of }: Props) {
  const { value, failure, reload } = useLive(
    node,
    ["run"],
    async (signal) => {
      const [schedule, { runs }] = await Promise.all([
        client.getSchedule(of, { signal }),
        client.listScheduleRuns({ ...of, limit: maxRuns }, { signal }),
      ]);
      return { schedule, runs };
    },
    [client, of.owner, of.id],
  );
  return (
    <>
      <a class="back" href={pathTo("schedules")}>
        {labels.all}
      </a>
      <Heading title={plainText(of.id)} />
      <Failure message={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {value !== undefined && (
        <>
          <p class="lead">
            <ActionSummary action={value.schedule.action} />
          </p>
          <Actions client={client} schedule={value.schedule} onDone={reload} />
          <WatchedRun client={client} of={of} runs={value.runs} onDone={reload} />
          <About schedule={value.schedule} />
          <Runs runs={value.runs} />
        </>
      )}
    </>
  );
}

function Actions({
  client,
  schedule,
  onDone,
}: Pick<Props, "client"> & { schedule: Schedule; onDone: () => void }) {
  const { busy, failure, perform } = useAction();
  const notice = useSignal("");
  const { id, owner, enabled, lastRun } = schedule;
  const isOn = enabled !== false;
  const act = async (name: string, work: () => Promise<unknown>): Promise<void> => {
    notice.value = "";
    await perform(name, work);
    onDone();
  };
  const run = (): Promise<void> =>
    act("run", async () => {
      const { started } = await client.runSchedule({ id, owner });
      notice.value = started ? labels.began : labels.wentAlready;
    });
  return (
    <>
      <div class="row">
        <button type="button" aria-busy={busy === "run"} onClick={() => void run()}>
          {labels.runNow}
        </button>
        {lastRun?.status === "RUNNING" && (
          <button
            type="button"
            onClick={() => void act("cancel", () => client.cancelScheduleRun({ id, owner }))}
          >
            {labels.cancelRun}
          </button>
        )}
        <button
          type="button"
          onClick={() => void act("switch", () => client.upsertSchedule(switched(schedule, !isOn)))}
        >
          {isOn ? labels.disable : labels.enable}
        </button>
        <a class="button" href={pathTo("schedules", String(owner), id, "edit")}>
          {labels.edit}
        </a>
        <ConfirmButton
          title={labels.removeTitle(plainText(id))}
          action={labels.remove}
          onConfirm={async () => {
            const { hash } = location;
            await client.removeSchedule({ id, owner });
            // Do not navigate if the user has opened another view.
            if (location.hash === hash) location.hash = pathTo("schedules");
          }}
        >
          <p>{labels.removeLoses}</p>
        </ConfirmButton>
        <span role="status">{notice.value}</span>
      </div>
      <Failure message={failure} />
    </>
  );
}

function About({ schedule }: { schedule: Schedule }) {
  const { trigger, utc, timeZone, comment, managedBy, timeout, retries, skipped, owner, ownerName } =
    schedule;
  const facts: readonly [string, ComponentChildren][] = [
    [labels.columns.when, <Text key="when" of={trigger} />],
    [labels.zone, utc ? "UTC" : plainText(timeZone) || labels.nodeZone],
    [labels.columns.next, <NextRun key="next" schedule={schedule} />],
    [labels.columns.owner, <Text key="owner" of={ownerName || String(owner)} />],
    [labels.comment, comment && <Text key="comment" of={comment} />],
    [labels.managed, managedBy === undefined ? "" : <Text key="managed" of={managedBy} />],
    [labels.timeout, labels.timeoutSays(timeout ?? 600)],
    [labels.retries, retries === 0 ? "" : String(retries)],
    [labels.skipped, skipped === 0 ? "" : String(skipped)],
  ];
  return <Facts title={labels.facts} facts={facts} />;
}

function Runs({ runs }: { runs: readonly ScheduleRun[] }) {
  return (
    <section class="card" aria-labelledby="runs">
      <h2 id="runs">{labels.runs}</h2>
      {runs.length === 0 && <p>{labels.noRuns}</p>}
      {runs.map((run, at) => (
        <Run key={run.id} run={run} isOpen={at === 0} />
      ))}
    </section>
  );
}

function Run({ run, isOpen }: { run: ScheduleRun; isOpen: boolean }) {
  const { trigger, startedAt, exitCode, httpStatus, attempt, output, error, truncated } = run;
  const took = secondsOf(run);
  const words = [
    labels.runBy[trigger] ?? trigger,
    attempt > 1 ? labels.attempt(attempt) : "",
    took === undefined ? "" : labels.runTook(took),
    exitCode === undefined ? "" : labels.exitCode(exitCode),
    httpStatus === undefined ? "" : labels.httpStatus(httpStatus),
  ];
  return (
    <details open={isOpen}>
      <summary>
        <RunState run={run} /> <When at={startedAt} />{" "}
        <span class="quiet">{words.filter((word) => word !== "").join(", ")}</span>
      </summary>
      {error !== "" && (
        <p class="notice bad">
          <Text of={error} />
        </p>
      )}
      {output === "" ? (
        <p class="quiet">{labels.noOutput}</p>
      ) : (
        <pre class="command" aria-label={labels.output}>
          {output.split("\n").map(plainLine).join("\n")}
        </pre>
      )}
      {truncated && <p class="quiet">{labels.truncated}</p>}
    </details>
  );
}
