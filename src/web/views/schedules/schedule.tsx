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
import { scheduleTexts as says } from "../../texts/schedules.ts";
import { switched } from "./schedule-draft.ts";
import { ScheduleForm } from "./schedule-form.tsx";
import { Does, NextRun, RunState, secondsOf } from "./schedule-words.tsx";
import { WatchedRun } from "./watched-run.tsx";

const mostRuns = 20;

interface Props {
  client: Client<typeof ScheduleService>;
  node: NodeView;
  of: { readonly owner: number; readonly id: string };
}

/** One schedule in a form, as it is when that is opened. */
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
        {says.all}
      </a>
      <Heading title={says.editTitle(plainText(of.id))} />
      {failure === "" ? <p>{texts.loading}</p> : <Failure says={failure} />}
    </>
  );
}

/** One schedule, what it did and what may be done with it. */
export function ScheduleView({ client, node, of }: Props) {
  const { value, failure, again } = useLive(
    node,
    ["run"],
    async (signal) => {
      const [schedule, { runs }] = await Promise.all([
        client.getSchedule(of, { signal }),
        client.listScheduleRuns({ ...of, limit: mostRuns }, { signal }),
      ]);
      return { schedule, runs };
    },
    [client, of.owner, of.id],
  );
  return (
    <>
      <a class="back" href={pathTo("schedules")}>
        {says.all}
      </a>
      <Heading title={plainText(of.id)} />
      <Failure says={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {value !== undefined && (
        <>
          <p class="lead">
            <Does action={value.schedule.action} />
          </p>
          <Actions client={client} schedule={value.schedule} onDone={again} />
          <WatchedRun client={client} of={of} runs={value.runs} onDone={again} />
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
  const said = useSignal("");
  const { id, owner, enabled, lastRun } = schedule;
  const isOn = enabled !== false;
  const act = async (name: string, work: () => Promise<unknown>): Promise<void> => {
    said.value = "";
    await perform(name, work);
    onDone();
  };
  const run = (): Promise<void> =>
    act("run", async () => {
      const { started } = await client.runSchedule({ id, owner });
      said.value = started ? says.began : says.wentAlready;
    });
  return (
    <>
      <div class="row">
        <button type="button" aria-busy={busy === "run"} onClick={() => void run()}>
          {says.runNow}
        </button>
        {lastRun?.status === "RUNNING" && (
          <button
            type="button"
            onClick={() => void act("cancel", () => client.cancelScheduleRun({ id, owner }))}
          >
            {says.cancelRun}
          </button>
        )}
        <button
          type="button"
          onClick={() => void act("switch", () => client.upsertSchedule(switched(schedule, !isOn)))}
        >
          {isOn ? says.disable : says.enable}
        </button>
        <a class="button" href={pathTo("schedules", String(owner), id, "edit")}>
          {says.edit}
        </a>
        <ConfirmButton
          title={says.removeTitle(plainText(id))}
          action={says.remove}
          onConfirm={async () => {
            const { hash } = location;
            await client.removeSchedule({ id, owner });
            // Who looks at something else by now goes on with that.
            if (location.hash === hash) location.hash = pathTo("schedules");
          }}
        >
          <p>{says.removeLoses}</p>
        </ConfirmButton>
        <span role="status">{said.value}</span>
      </div>
      <Failure says={failure} />
    </>
  );
}

function About({ schedule }: { schedule: Schedule }) {
  const { trigger, utc, timeZone, comment, managedBy, timeout, retries, skipped, owner, ownerName } =
    schedule;
  const facts: readonly [string, ComponentChildren][] = [
    [says.columns.when, <Text key="when" of={trigger} />],
    [says.zone, utc ? "UTC" : plainText(timeZone) || says.nodeZone],
    [says.columns.next, <NextRun key="next" schedule={schedule} />],
    [says.columns.owner, <Text key="owner" of={ownerName || String(owner)} />],
    [says.comment, comment && <Text key="comment" of={comment} />],
    [says.managed, managedBy === undefined ? "" : <Text key="managed" of={managedBy} />],
    [says.timeout, says.timeoutSays(timeout ?? 600)],
    [says.retries, retries === 0 ? "" : String(retries)],
    [says.skipped, skipped === 0 ? "" : String(skipped)],
  ];
  return <Facts title={says.facts} facts={facts} />;
}

function Runs({ runs }: { runs: readonly ScheduleRun[] }) {
  return (
    <section class="card" aria-labelledby="runs">
      <h2 id="runs">{says.runs}</h2>
      {runs.length === 0 && <p>{says.noRuns}</p>}
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
    says.runBy[trigger] ?? trigger,
    attempt > 1 ? says.attempt(attempt) : "",
    took === undefined ? "" : says.runTook(took),
    exitCode === undefined ? "" : says.exitCode(exitCode),
    httpStatus === undefined ? "" : says.httpStatus(httpStatus),
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
        <p class="quiet">{says.noOutput}</p>
      ) : (
        <pre class="command" aria-label={says.output}>
          {output.split("\n").map(plainLine).join("\n")}
        </pre>
      )}
      {truncated && <p class="quiet">{says.truncated}</p>}
    </details>
  );
}
