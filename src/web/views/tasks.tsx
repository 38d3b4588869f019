import { useSignal } from "@preact/signals";
import type { App, AppTask } from "../../../gen/svc/v1/app_pb.ts";
import { useAction } from "../action.ts";
import type { Api } from "../api.ts";
import { Failure } from "../parts/failure.tsx";
import { TextField } from "../parts/field.tsx";
import { Table, type Column } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/when.tsx";
import { texts } from "../texts.ts";

const { tasks } = texts;

/** The tasks of an app on a swarm, and their number. */
export function TasksView({ api, app: { id, tasks: rows, placement } }: { api: Api; app: App }) {
  const typed = useSignal<string | undefined>(undefined);
  const notice = useSignal("");
  const { busy, failure, perform } = useAction();
  const number = typed.value ?? String(placement?.replicas ?? 1);
  const scale = (event: SubmitEvent): void => {
    event.preventDefault();
    notice.value = "";
    void perform("scale", async () => {
      const { placement: now } = await api.apps.scaleApp({ id, replicas: Number(number) });
      typed.value = undefined;
      notice.value = tasks.scaled(now?.replicas ?? 1);
    });
  };
  return (
    <section class="card" aria-labelledby="tasks">
      <h2 id="tasks">{tasks.title}</h2>
      <Table
        label={tasks.title}
        rows={rows}
        keyOf={({ slot, node, since }) => `${String(slot)} ${node} ${String(since?.seconds ?? 0)}`}
        none={tasks.none}
        columns={taskColumns}
      />
      <form class="settings" onSubmit={scale}>
        <TextField
          label={tasks.number}
          value={number}
          onType={(value) => (typed.value = value)}
          input={{ type: "number", min: 1, max: 1000, step: 1, required: true }}
        />
        <div class="row">
          <button type="submit" aria-busy={busy !== ""}>
            {tasks.scale}
          </button>
          <span role="status">{notice.value}</span>
        </div>
        <Failure message={failure} />
      </form>
    </section>
  );
}

const taskColumns: readonly Column<AppTask>[] = [
  { title: tasks.columns.slot, cell: ({ slot }) => String(slot) },
  { title: tasks.columns.node, cell: ({ node }) => <Text of={node} /> },
  { title: tasks.columns.state, cell: ({ state }) => <Text of={state} /> },
  { title: tasks.columns.message, cell: ({ message }) => <Text of={message} /> },
  { title: tasks.columns.since, cell: ({ since }) => <When at={since} /> },
];
