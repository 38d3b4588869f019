import { useMemo } from "preact/hooks";
import type { Client } from "@connectrpc/connect";
import {
  DockerService,
  type ContainerDetails,
  type ContainerStats,
} from "../../../../gen/svc/v1/docker_pb.ts";
import { useSample } from "../../host-sample.ts";
import { useLive } from "../../live.ts";
import { AppLink, AppOwner } from "../../parts/links.tsx";
import { Facts } from "../../parts/facts.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Text } from "../../parts/text.tsx";
import { When } from "../../parts/when.tsx";
import { plainLine, plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { inventoryTexts as labels } from "../../texts/inventory.ts";
import { formatBytes, formatPercent } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";

const { columns } = labels;
const tail = 500;
/** Minimum milliseconds between reads, since any container's change causes one, including the log. */
const readAgainMs = 2_000;

/** A container's details, resource usage and last output. */
export function ContainerView({ api, node, id }: Pick<ViewProps, "api" | "node"> & { id: string }) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const { value, failure, reload } = useLive(
    node,
    ["container"],
    async (signal) => {
      const [details, logs] = await Promise.all([
        client.inspectContainer({ container: id }, { signal }),
        client.getContainerLogs({ container: id, tail }, { signal }),
      ]);
      return { details, name: details.container?.name ?? id, ...logs };
    },
    [client, id],
    readAgainMs,
  );
  // A removed container uses no resources.
  const isKnown = value !== undefined && failure === "";
  return (
    <>
      <a class="back" href={pathTo("inventory", "containers")}>
        {labels.allContainers}
      </a>
      <Heading title={plainText(value?.name ?? id)} />
      <Failure message={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {isKnown && (
        <div class="cards">
          <About node={node} of={value.details} />
          {value.details.container?.state === "running" && <Stats client={client} id={id} />}
        </div>
      )}
      {isKnown && (
        <section class="card" aria-labelledby="container-log">
          <h2 id="container-log">{labels.log}</h2>
          {value.truncated && <p class="quiet">{labels.logCut}</p>}
          {value.lines.length === 0 ? (
            <p>{labels.noLog}</p>
          ) : (
            <div class="log" tabIndex={0} role="region" aria-label={labels.log}>
              {value.lines.map(({ text }, at) => (
                <div class="line" key={at} dir="auto">
                  {plainLine(text)}
                </div>
              ))}
            </div>
          )}
          <div class="row">
            <button type="button" onClick={reload}>
              {labels.logAgain}
            </button>
          </div>
        </section>
      )}
    </>
  );
}

function About({ node, of }: Pick<ViewProps, "node"> & { of: ContainerDetails }) {
  const { container, command, startedAt, exitCode, health } = of;
  return (
    <Facts
      title={labels.about}
      facts={[
        [columns.state, <Text key="state" of={container?.status ?? ""} />],
        [labels.health, health],
        [labels.exit, container?.state === "running" ? undefined : exitCode],
        [columns.app, container?.appId !== undefined && <AppLink key="app" id={container.appId} />],
        [
          columns.owner,
          container?.appId !== undefined && <AppOwner key="of" node={node} id={container.appId} />,
        ],
        [columns.image, <Text key="image" of={container?.image ?? ""} />],
        [columns.command, <Text key="command" of={command.join(" ")} />],
        [columns.started, startedAt && <When key="started" at={startedAt} />],
      ]}
    />
  );
}

/** Current resource usage. */
function Stats({ client, id }: { client: Client<typeof DockerService>; id: string }) {
  const read = async (signal: AbortSignal): Promise<ContainerStats | undefined> =>
    (await client.listContainerStats({ ids: [id] }, { signal })).stats[0];
  const now = useSample(read, [client, id]);
  if (now === undefined) return null;
  const memory = formatBytes(now.memoryBytes);
  return (
    <Facts
      title={labels.takes}
      facts={[
        [columns.cpu, formatPercent(now.cpuPercent)],
        [
          columns.memory,
          now.memoryLimitBytes === undefined
            ? memory
            : texts.overview.used(memory, formatBytes(now.memoryLimitBytes)),
        ],
        [labels.received, formatBytes(now.networkReceivedBytes)],
        [labels.sent, formatBytes(now.networkSentBytes)],
        [labels.read, formatBytes(now.blockReadBytes)],
        [labels.written, formatBytes(now.blockWrittenBytes)],
      ]}
    />
  );
}
