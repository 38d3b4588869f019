import { useMemo } from "preact/hooks";
import { DockerService, type Image } from "../../../../gen/svc/v1/docker_pb.ts";
import { useLive } from "../../live.ts";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import { formatBytes } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";
import { EngineFailure } from "./engine-failure.tsx";
import { Prune } from "./prune.tsx";

const { columns } = says;

export function Images({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const live = useLive(node, ["container"], (signal) => client.listImages({}, { signal }), [client]);
  return (
    <>
      <EngineFailure of={live} />
      {live.failure === "" && (
        <>
          <Prune client={client} target="images" onDone={live.again} />
          <Table
            label={says.parts.images}
            rows={live.value?.images}
            keyOf={({ id }) => id}
            none={says.noImages}
            columns={imageColumns}
          />
        </>
      )}
    </>
  );
}

const imageColumns: readonly Column<Image>[] = [
  { title: columns.name, cell: ({ tags, id }) => <Text of={tags.join(", ") || id.slice(0, 19)} /> },
  { title: columns.size, kind: "figure", cell: ({ sizeBytes }) => formatBytes(sizeBytes) },
  { title: columns.made, cell: ({ createdAt }) => <When at={createdAt} /> },
  { title: columns.usedBy, cell: ({ containers }) => (containers === 0 ? "" : says.containers(containers)) },
  { title: columns.kept, cell: ({ protectedReason = "" }) => <Text of={protectedReason} /> },
];
