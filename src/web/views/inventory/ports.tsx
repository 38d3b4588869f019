import type { ListeningPort } from "../../../../gen/svc/v1/monitor_pb.ts";
import { useLive } from "../../live.ts";
import { AppLink } from "../../parts/links.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import type { ViewProps } from "../../view-props.ts";

const { columns } = labels;

/** Every listening port, with its owner as far as the user may see it. */
export function Ports({ api, node }: Pick<ViewProps, "api" | "node">) {
  const live = useLive(
    node,
    ["app", "container"],
    (signal) => api.monitor.listListeningPorts({}, { signal }),
    [api],
  );
  return (
    <>
      <Failure message={live.failure} />
      {live.failure === "" && (
        <Table
          label={labels.parts.ports}
          rows={live.value?.ports}
          keyOf={({ protocol, address, port }) => `${protocol} ${address} ${String(port)}`}
          none={labels.noPorts}
          columns={portColumns}
        />
      )}
    </>
  );
}

const portColumns: readonly Column<ListeningPort>[] = [
  { title: columns.port, cell: ({ port, protocol }) => `${String(port)}/${protocol}` },
  { title: columns.address, cell: ({ address }) => <Text of={address} /> },
  { title: columns.app, cell: ({ appId }) => <AppLink id={appId} /> },
  {
    title: columns.process,
    cell: ({ process, pid }) => (process === undefined ? "" : <Text of={`${process} (${String(pid)})`} />),
  },
  { title: columns.user, cell: ({ user }) => <Text of={user} /> },
  { title: columns.container, cell: ({ container = "" }) => <Text of={container} /> },
];
