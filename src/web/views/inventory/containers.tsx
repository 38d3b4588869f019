import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { DockerService, type Container } from "../../../../gen/svc/v1/docker_pb.ts";
import { useAction } from "../../action.ts";
import { useLive } from "../../live.ts";
import { AppLink, AppOwner } from "../../parts/links.tsx";
import { Confirm } from "../../parts/confirm.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import type { ViewProps } from "../../view-props.ts";
import { Adopt } from "./adopt.tsx";
import { EngineFailure } from "./engine-lists.tsx";

const { columns } = labels;
const verbs = ["start", "stop", "restart"] as const;

/** Every container of the host; containers of apps are controlled through their apps. */
export function Containers({ api, node }: Pick<ViewProps, "api" | "node">) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const live = useLive(
    node,
    ["container", "app"],
    (signal) => client.listContainers({ all: true }, { signal }),
    [client],
  );
  const { busy, failure, perform } = useAction();
  const removed = useSignal<Container | undefined>(undefined);
  const adopted = useSignal("");
  const control = async ({ id }: Container, action: string): Promise<void> => {
    await perform(`${action} ${id}`, () =>
      client.controlContainer({ target: { case: "container", value: id }, action }),
    );
    live.reload();
  };
  const actionsOf = (container: Container) =>
    container.appId !== undefined ? (
      <span class="quiet">{labels.throughApp}</span>
    ) : (
      <div class="buttons">
        {verbs
          .filter((verb) => (verb === "start") !== (container.state === "running"))
          .map((verb) => (
            <button
              key={verb}
              type="button"
              aria-busy={busy === `${verb} ${container.id}`}
              onClick={() => void control(container, verb)}
            >
              {labels[verb]}
            </button>
          ))}
        <button type="button" onClick={() => (adopted.value = container.composeProject ?? container.name)}>
          {labels.adopt}
        </button>
        <button type="button" class="danger" onClick={() => (removed.value = container)}>
          {labels.remove}
        </button>
      </div>
    );
  const all: readonly Column<Container>[] = [
    {
      title: columns.name,
      cell: ({ id, name }) => (
        <a href={pathTo("inventory", "containers", id)}>
          <Text of={name} />
        </a>
      ),
    },
    { title: columns.app, cell: ({ appId }) => <AppLink id={appId} /> },
    { title: columns.owner, cell: ({ appId }) => <AppOwner node={node} id={appId} /> },
    { title: columns.state, cell: ({ status, state }) => <Text of={status || state} /> },
    { title: columns.image, cell: ({ image }) => <Text of={image} /> },
    { title: columns.ports, cell: ({ ports }) => <Text of={portsOf(ports)} /> },
    { title: columns.actions, kind: "actions", cell: actionsOf },
  ];
  const toRemove = removed.value;
  return (
    <>
      <EngineFailure of={live} />
      <Failure message={failure} />
      <Adopt client={client} node={node} name={adopted} />
      {live.failure === "" && (
        <Table
          label={labels.parts.containers}
          rows={live.value?.containers}
          keyOf={({ id }) => id}
          none={labels.noContainers}
          columns={all}
        />
      )}
      {toRemove !== undefined && (
        <Confirm
          title={labels.removeTitle(plainText(toRemove.name))}
          action={labels.remove}
          onClose={() => (removed.value = undefined)}
          onConfirm={async () => {
            await client.controlContainer({
              target: { case: "container", value: toRemove.id },
              action: "remove",
            });
            live.reload();
          }}
        >
          <p>{labels.removeLoses}</p>
        </Confirm>
      )}
    </>
  );
}

function portsOf(ports: Container["ports"]): string {
  return ports
    .map(({ protocol, containerPort, hostPort, hostAddress = "" }) =>
      hostPort === undefined
        ? `${String(containerPort)}/${protocol}`
        : `${hostAddress}:${String(hostPort)} → ${String(containerPort)}/${protocol}`,
    )
    .join(", ");
}
