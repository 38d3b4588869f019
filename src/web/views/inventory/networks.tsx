import { useMemo } from "preact/hooks";
import { DockerService, type Network } from "../../../../gen/svc/v1/docker_pb.ts";
import { useLive } from "../../live.ts";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import type { ViewProps } from "../../view-props.ts";
import { EngineFailure } from "./engine-failure.tsx";

const { columns } = says;

export function Networks({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const live = useLive(node, ["container"], (signal) => client.listNetworks({}, { signal }), [client]);
  return (
    <>
      <EngineFailure of={live} />
      {live.failure === "" && (
        <Table
          label={says.parts.networks}
          rows={live.value?.networks}
          keyOf={({ id }) => id}
          none={says.noNetworks}
          columns={networkColumns}
        />
      )}
    </>
  );
}

const networkColumns: readonly Column<Network>[] = [
  { title: columns.name, cell: ({ name }) => <Text of={name} /> },
  { title: columns.driver, cell: ({ driver }) => <Text of={driver} /> },
  { title: columns.subnets, cell: ({ subnets }) => <Text of={subnets.join(", ")} /> },
];
