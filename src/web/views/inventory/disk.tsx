import { useMemo } from "preact/hooks";
import type { AppDisk } from "../../../../gen/svc/v1/app_pb.ts";
import { DockerService, type DockerDiskUsage } from "../../../../gen/svc/v1/docker_pb.ts";
import { diskPercent } from "../../../lib/disk-share.ts";
import { describeError } from "../../api.ts";
import { useLive } from "../../live.ts";
import { AppLink } from "../../parts/app-link.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Bar, Meter, percentOf } from "../../parts/meter.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { plainText } from "../../plain-text.ts";
import { texts } from "../../texts.ts";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import { formatBytes } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";
import { Prune } from "./prune.tsx";

const { columns } = says;

/** What apps take on the disk, and for root what the container engine does. */
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
          {unknown !== undefined && says.partly} {formatBytes(totalBytes)}{" "}
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
      <Failure says={failure} />
      {value?.filesystem !== undefined && (
        <Meter
          label={says.filesystem}
          share={diskPercent(value.filesystem)}
          says={`${texts.overview.used(
            formatBytes(value.filesystem.usedBytes),
            formatBytes(value.filesystem.sizeBytes),
          )}, ${says.left(formatBytes(value.filesystem.availableBytes))}`}
        />
      )}
      {failure === "" && (
        <Table
          label={says.parts.disk}
          rows={value?.apps}
          keyOf={({ id }) => id}
          none={says.noApps}
          columns={all}
        />
      )}
      {isRoot && <EngineDisk api={api} node={node} />}
    </>
  );
}

/** An engine that is not there takes nothing. */
function EngineDisk({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const { value, again } = useLive(
    node,
    [],
    (signal) => client.getDockerDiskUsage({}, { signal }).catch((error: unknown) => describeError(error)),
    [client],
  );
  if (value === undefined) return null;
  if (typeof value === "string") return <p class="quiet">{plainText(value)}</p>;
  return (
    <Facts title={says.engineDisk} facts={partsOf(value)}>
      <Prune client={client} target="build_cache" onDone={again} />
    </Facts>
  );
}

function partsOf({ images, containers, volumes, buildCache }: DockerDiskUsage): [string, string][] {
  const parts = { images, containers, volumes, buildCache };
  return Object.entries(parts).map(([name, part]) => [
    says.engineParts[name as keyof typeof parts],
    part === undefined ? "" : says.items(part.count, formatBytes(part.sizeBytes)),
  ]);
}
