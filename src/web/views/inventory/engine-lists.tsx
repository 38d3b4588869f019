import type { Client } from "@connectrpc/connect";
import { useMemo } from "preact/hooks";
import { DockerService, type Image, type Network, type Volume } from "../../../../gen/svc/v1/docker_pb.ts";
import { useLive, type Live } from "../../live.ts";
import { Table, type Column, type TableProps } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import { formatBytes } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";
import { Prune } from "./prune.tsx";
import { Failure } from "../../parts/failure.tsx";
import { texts } from "../../texts.ts";

const { columns } = labels;

type Props = Pick<ViewProps, "api" | "node">;

interface EngineListProps<Row> extends Props, Omit<TableProps<Row>, "rows"> {
  readonly read: (client: Client<typeof DockerService>, signal: AbortSignal) => Promise<readonly Row[]>;
  /** Kind of objects that can be pruned. */
  readonly pruned?: "images" | "volumes";
}

function EngineList<Row>({ api, node, read, pruned, ...table }: EngineListProps<Row>) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const live = useLive(node, ["container"], (signal) => read(client, signal), [client]);
  return (
    <>
      <EngineFailure of={live} />
      {live.failure === "" && (
        <>
          {pruned !== undefined && <Prune client={client} node={node} target={pruned} onDone={live.reload} />}
          <Table {...table} rows={live.value} />
        </>
      )}
    </>
  );
}

export function Images(props: Props) {
  return (
    <EngineList
      {...props}
      read={async (client, signal) => (await client.listImages({}, { signal })).images}
      pruned="images"
      label={labels.parts.images}
      keyOf={({ id }) => id}
      none={labels.noImages}
      columns={imageColumns}
    />
  );
}

export function Volumes(props: Props) {
  return (
    <EngineList
      {...props}
      read={async (client, signal) => (await client.listVolumes({}, { signal })).volumes}
      pruned="volumes"
      label={labels.parts.volumes}
      keyOf={({ name }) => name}
      none={labels.noVolumes}
      columns={volumeColumns}
    />
  );
}

export function Networks(props: Props) {
  return (
    <EngineList
      {...props}
      read={async (client, signal) => (await client.listNetworks({}, { signal })).networks}
      label={labels.parts.networks}
      keyOf={({ id }) => id}
      none={labels.noNetworks}
      columns={networkColumns}
    />
  );
}

const imageColumns: readonly Column<Image>[] = [
  { title: columns.name, cell: ({ tags, id }) => <Text of={tags.join(", ") || id.slice(0, 19)} /> },
  { title: columns.size, kind: "figure", cell: ({ sizeBytes }) => formatBytes(sizeBytes) },
  { title: columns.made, cell: ({ createdAt }) => <When at={createdAt} /> },
  {
    title: columns.usedBy,
    cell: ({ containers }) => (containers === 0 ? "" : labels.containers(containers)),
  },
  { title: columns.kept, cell: ({ protectedReason = "" }) => <Text of={protectedReason} /> },
];

const volumeColumns: readonly Column<Volume>[] = [
  {
    title: columns.name,
    cell: ({ name, anonymous }) => (
      <>
        <Text of={name} /> {anonymous && <span class="quiet">{labels.unnamed}</span>}
      </>
    ),
  },
  { title: columns.driver, cell: ({ driver }) => <Text of={driver} /> },
  { title: columns.made, cell: ({ createdAt }) => <When at={createdAt} /> },
  {
    title: columns.usedBy,
    cell: ({ containers }) => (containers === 0 ? "" : labels.containers(containers)),
  },
  { title: columns.kept, cell: ({ protectedReason = "" }) => <Text of={protectedReason} /> },
];

const networkColumns: readonly Column<Network>[] = [
  { title: columns.name, cell: ({ name }) => <Text of={name} /> },
  { title: columns.driver, cell: ({ driver }) => <Text of={driver} /> },
  { title: columns.subnets, cell: ({ subnets }) => <Text of={subnets.join(", ")} /> },
];

/** Explains why the container engine's data is missing. Many hosts need no engine. */
export function EngineFailure({ of }: { of: Live<unknown> }) {
  if (!of.isUnavailable) return <Failure message={of.failure} />;
  return (
    <div class="notice" role="status">
      <p>
        <strong>{labels.noEngine}</strong> {labels.noEngineNeeded}
      </p>
      <p class="quiet">
        <Text of={of.failure} />
      </p>
      <p>{labels.noEngineHint}</p>
      <button type="button" onClick={of.reload}>
        {texts.readAgain}
      </button>
    </div>
  );
}
