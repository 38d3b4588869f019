import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { ProcessService, type Process } from "../../../../gen/svc/v1/process_pb.ts";
import { useLive } from "../../live.ts";
import { AppLink } from "../../parts/links.tsx";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainText } from "../../plain-text.ts";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import { formatBytes, formatPercent } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";

const { columns } = labels;
/** Rows shown at first; the filter finds the others. */
const atOnce = 50;

/** Processes, busiest first. Root can terminate them. */
export function Processes({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(ProcessService), [api]);
  const live = useLive(node, ["app"], (signal) => client.listProcesses({ sort: "cpu" }, { signal }), [
    client,
  ]);
  const filter = useSignal("");
  const ended = useSignal<Process | undefined>(undefined);
  const word = filter.value.trim().toLowerCase();
  const shown = live.value?.processes.filter((process) =>
    [process.name, process.command, process.user, process.appId ?? ""].some((text) =>
      text.toLowerCase().includes(word),
    ),
  );
  const isRoot = node.status.value?.caller?.root === true;
  const actions: Column<Process> = {
    title: columns.actions,
    kind: "actions",
    cell: (process) => (
      <button type="button" onClick={() => (ended.value = process)}>
        {labels.end}
      </button>
    ),
  };
  const toEnd = ended.value;
  return (
    <>
      <Failure message={live.failure} />
      <div class="row">
        <input
          class="filter"
          type="search"
          aria-label={labels.filter}
          placeholder={labels.filter}
          value={filter.value}
          onInput={({ currentTarget }) => (filter.value = currentTarget.value)}
        />
        <button type="button" onClick={live.reload}>
          {labels.logAgain}
        </button>
        <span class="quiet" role="status">
          {shown !== undefined && labels.processesCounted(shown.length)}
        </span>
      </div>
      <Table
        label={labels.parts.processes}
        rows={shown}
        keyOf={({ pid, startTicks }) => `${String(pid)} ${String(startTicks)}`}
        none={labels.noProcesses}
        atOnce={atOnce}
        columns={isRoot ? [...processColumns, actions] : processColumns}
      />
      {toEnd !== undefined && (
        <Confirm
          title={labels.endTitle(plainText(toEnd.name), toEnd.pid)}
          action={labels.end}
          onClose={() => (ended.value = undefined)}
          onConfirm={async () => {
            const { pid, startTicks } = toEnd;
            // The PID may have been reused.
            await client.signalProcess({ pid, signal: "term", expectedStartTicks: startTicks });
            live.reload();
          }}
        >
          <p>
            <code>{plainText(toEnd.command)}</code>
          </p>
          <p>{labels.endLoses}</p>
        </Confirm>
      )}
    </>
  );
}

/** Two lines of the command; the whole command as tooltip. */
function Command({ of }: { of: string }) {
  return (
    <span class="short" title={plainText(of)}>
      <Text of={of} />
    </span>
  );
}

const processColumns: readonly Column<Process>[] = [
  { title: columns.name, cell: ({ name }) => <Text of={name} /> },
  { title: columns.pid, kind: "figure", cell: ({ pid }) => String(pid) },
  { title: columns.user, kind: "word", cell: ({ user }) => <Text of={user} /> },
  { title: columns.app, kind: "word", cell: ({ appId }) => <AppLink id={appId} /> },
  { title: columns.cpu, kind: "figure", cell: ({ cpuPercent }) => formatPercent(cpuPercent) },
  { title: columns.memory, kind: "figure", cell: ({ rssBytes }) => formatBytes(rssBytes) },
  { title: columns.started, cell: ({ startedAt }) => <When at={startedAt} /> },
  { title: columns.command, kind: "long", cell: ({ command }) => <Command of={command.slice(0, 300)} /> },
];
