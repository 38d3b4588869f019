import { useMemo } from "preact/hooks";
import type { AppDisk } from "../../../../gen/svc/v1/app_pb.ts";
import { DockerService, type DockerDiskUsage } from "../../../../gen/svc/v1/docker_pb.ts";
import { diskPercent } from "../../../lib/disk-share.ts";
import { describeError } from "../../api.ts";
import { useLive } from "../../live.ts";
import { AppLink } from "../../parts/links.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Bar, Meter, percentOf } from "../../parts/meter.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { plainText } from "../../plain-text.ts";
import { texts } from "../../texts.ts";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import { formatBytes } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";
import { Prune } from "./prune.tsx";

const { columns } = labels;

/** Disk usage of apps and, for root, of the container engine. */
export function Disk({ api, node }: Pick<ViewProps, "api" | "node">) {
  const live = useLive(node, [], (signal) => api.apps.getDiskReport({}, { signal }), [api]);
  const { value, failure } = live;
  const isRoot = node.status.value?.caller?.root === true;
  const largest = value?.apps[0]?.totalBytes ?? 0n;
  const all: readonly Column<AppDisk>[] = [
    { title: columns.app, cell: ({ id }) => <AppLink id={id} /> },
    {
      title: columns.total,
      cell: ({ name, totalBytes, unknown }) => (
        <>
          {unknown !== undefined && labels.partly} {formatBytes(totalBytes)}{" "}
          <Bar label={plainText(name)} share={percentOf(totalBytes, largest)} />
        </>
      ),
    },
    { title: columns.data, kind: "figure", cell: ({ dataBytes }) => formatBytes(dataBytes) },
    { title: columns.volumes, kind: "figure", cell: ({ volumesBytes }) => formatBytes(volumesBytes) },
    { title: columns.program, kind: "figure", cell: ({ repositoryBytes }) => formatBytes(repositoryBytes) },
    {
      title: columns.images,
      kind: "figure",
      cell: ({ imageBytes }) => (imageBytes === undefined ? "" : formatBytes(imageBytes)),
    },
  ];
  return (
    <>
      <Failure message={failure} />
      {value?.filesystem !== undefined && (
        <Meter
          label={labels.filesystem}
          share={diskPercent(value.filesystem)}
          text={`${texts.overview.used(
            formatBytes(value.filesystem.usedBytes),
            formatBytes(value.filesystem.sizeBytes),
          )}, ${labels.left(formatBytes(value.filesystem.availableBytes))}`}
        />
      )}
      {failure === "" && (
        <Table
          label={labels.parts.disk}
          rows={value?.apps}
          keyOf={({ id }) => id}
          none={labels.noApps}
          columns={all}
        />
      )}
      {isRoot && <EngineDisk api={api} node={node} />}
    </>
  );
}

/** Nothing without a container engine. */
function EngineDisk({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const { value, reload } = useLive(
    node,
    [],
    (signal) => client.getDockerDiskUsage({}, { signal }).catch((error: unknown) => describeError(error)),
    [client],
  );
  if (value === undefined) return null;
  if (typeof value === "string") return <p class="quiet">{plainText(value)}</p>;
  return (
    <Facts title={labels.engineDisk} facts={partsOf(value)}>
      <Prune client={client} node={node} target="build_cache" onDone={reload} />
    </Facts>
  );
}

function partsOf({ images, containers, volumes, buildCache }: DockerDiskUsage): [string, string][] {
  const parts = { images, containers, volumes, buildCache };
  return Object.entries(parts).map(([name, part]) => [
    labels.engineParts[name as keyof typeof parts],
    part === undefined ? "" : labels.items(part.count, formatBytes(part.sizeBytes)),
  ]);
}
