import { useMemo } from "preact/hooks";
import { DockerService, type Volume } from "../../../../gen/svc/v1/docker_pb.ts";
import { useLive } from "../../live.ts";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import type { ViewProps } from "../../view-props.ts";
import { EngineFailure } from "./engine-failure.tsx";
import { Prune } from "./prune.tsx";

const { columns } = says;

export function Volumes({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const live = useLive(node, ["container"], (signal) => client.listVolumes({}, { signal }), [client]);
  return (
    <>
      <EngineFailure of={live} />
      {live.failure === "" && (
        <>
          <Prune client={client} target="volumes" onDone={live.again} />
          <Table
            label={says.parts.volumes}
            rows={live.value?.volumes}
            keyOf={({ name }) => name}
            none={says.noVolumes}
            columns={volumeColumns}
          />
        </>
      )}
    </>
  );
}

const volumeColumns: readonly Column<Volume>[] = [
  {
    title: columns.name,
    cell: ({ name, anonymous }) => (
      <>
        <Text of={name} /> {anonymous && <span class="quiet">{says.unnamed}</span>}
      </>
    ),
  },
  { title: columns.driver, cell: ({ driver }) => <Text of={driver} /> },
  { title: columns.made, cell: ({ createdAt }) => <When at={createdAt} /> },
  { title: columns.usedBy, cell: ({ containers }) => (containers === 0 ? "" : says.containers(containers)) },
  { title: columns.kept, cell: ({ protectedReason = "" }) => <Text of={protectedReason} /> },
];
