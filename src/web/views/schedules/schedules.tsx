import { useMemo } from "preact/hooks";
import { ScheduleService, type Schedule } from "../../../../gen/svc/v1/schedule_pb.ts";
import type { Client } from "@connectrpc/connect";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import { Failure } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Table } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { scheduleTexts as labels } from "../../texts/schedules.ts";
import type { ViewProps } from "../../view-props.ts";
import { everySchedule, readAgainMs } from "./all-schedules.ts";
import { switched } from "./schedule-draft.ts";
import { ScheduleForm } from "./schedule-form.tsx";
import { ActionSummary, NextRun, RunState } from "./schedule-text.tsx";
import { ChangeSchedule, ScheduleView } from "./schedule.tsx";
import { Week } from "./week.tsx";

const { columns } = labels;

/** `#/schedules`, `#/schedules/new`, `#/schedules/OWNER/ID` and `#/schedules/OWNER/ID/edit`. */
export function SchedulesView({ api, node, args: [owner, id, word] }: ViewProps) {
  const client = useMemo(() => api.client(ScheduleService), [api]);
  if (owner === undefined) return <List client={client} node={node} />;
  if (id === undefined) return <ScheduleForm client={client} node={node} />;
  const key = { owner: Number(owner), id };
  const View = word === "edit" ? ChangeSchedule : ScheduleView;
  return <View key={`${owner} ${id}`} client={client} node={node} of={key} />;
}

type ListProps = Pick<ViewProps, "node"> & { client: Client<typeof ScheduleService> };

function List({ client, node }: ListProps) {
  const live = useLive(node, ["run"], (signal) => everySchedule(client, signal), [client], readAgainMs);
  const action = useAction();
  const isRoot = node.status.value?.caller?.root === true;
  const switchTo = async (schedule: Schedule, enabled: boolean): Promise<void> => {
    await action.perform(keyOf(schedule), () => client.upsertSchedule(switched(schedule, enabled)));
    live.reload();
  };
  const run = async ({ id, owner }: Schedule, key: string): Promise<void> => {
    await action.perform(key, () => client.runSchedule({ id, owner }));
    live.reload();
  };
  return (
    <>
      <div class="titled">
        <Heading title={texts.schedules.title} />
        <a class="primary" href={pathTo("schedules", "new")}>
          {labels.add}
        </a>
      </div>
      <Failure message={live.failure} />
      <Failure message={action.failure} />
      {(live.value !== undefined || live.failure === "") && (
        <Table
          label={texts.schedules.title}
          rows={live.value}
          keyOf={keyOf}
          none={labels.none}
          columns={[
            {
              title: columns.name,
              cell: ({ owner, id }) => (
                <a href={pathTo("schedules", String(owner), id)}>
                  <Text of={id} />
                </a>
              ),
            },
            { title: columns.does, cell: ({ action }) => <ActionSummary action={action} /> },
            { title: columns.when, kind: "word", cell: ({ trigger }) => <Text of={trigger} /> },
            { title: columns.next, cell: (schedule) => <NextRun schedule={schedule} /> },
            {
              title: columns.last,
              cell: ({ lastRun }) =>
                lastRun === undefined ? (
                  labels.never
                ) : (
                  <>
                    <RunState run={lastRun} /> <When at={lastRun.startedAt} />
                  </>
                ),
            },
            ...(isRoot
              ? [
                  {
                    title: columns.owner,
                    cell: ({ ownerName, owner }: Schedule) => <Text of={ownerName || String(owner)} />,
                  },
                ]
              : []),
            {
              title: columns.actions,
              kind: "actions",
              cell: (schedule) => {
                const key = keyOf(schedule);
                const isOn = schedule.enabled !== false;
                return (
                  <div class="buttons">
                    <button
                      type="button"
                      aria-busy={action.busy === key}
                      onClick={() => void run(schedule, key)}
                    >
                      {labels.runNow}
                    </button>
                    <button type="button" onClick={() => void switchTo(schedule, !isOn)}>
                      {isOn ? labels.disable : labels.enable}
                    </button>
                  </div>
                );
              },
            },
          ]}
        />
      )}
      {live.value !== undefined && live.value.length > 0 && (
        <Week client={client} node={node} schedules={live.value} />
      )}
    </>
  );
}

function keyOf({ owner, id }: Schedule): string {
  return `${String(owner)} ${id}`;
}
