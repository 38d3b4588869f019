import { useMemo } from "preact/hooks";
import { DockerService } from "../../../../gen/svc/v1/docker_pb.ts";
import { useLive } from "../../live.ts";
import { Failure } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { plainLine, plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { inventoryTexts as says } from "../../texts/inventory.ts";
import type { ViewProps } from "../../view-props.ts";

const tail = 500;

/** What a container printed last. */
export function ContainerView({ api, node, id }: Pick<ViewProps, "api" | "node"> & { id: string }) {
  const client = useMemo(() => api.client(DockerService), [api]);
  const { value, failure, again } = useLive(
    node,
    [],
    async (signal) => {
      const [details, logs] = await Promise.all([
        client.inspectContainer({ container: id }, { signal }),
        client.getContainerLogs({ container: id, tail }, { signal }),
      ]);
      return { name: details.container?.name ?? id, ...logs };
    },
    [client, id],
  );
  return (
    <>
      <a class="back" href={pathTo("inventory", "containers")}>
        {says.allContainers}
      </a>
      <Heading title={plainText(value?.name ?? id)} />
      <Failure says={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {value !== undefined && (
        <section class="card" aria-labelledby="container-log">
          <h2 id="container-log">{says.log}</h2>
          {value.truncated && <p class="quiet">{says.logCut}</p>}
          {value.lines.length === 0 ? (
            <p>{says.noLog}</p>
          ) : (
            <div class="log" tabIndex={0} role="region" aria-label={says.log}>
              {value.lines.map(({ text }, at) => (
                <div class="line" key={at} dir="auto">
                  {plainLine(text)}
                </div>
              ))}
            </div>
          )}
          <div class="row">
            <button type="button" onClick={again}>
              {says.logAgain}
            </button>
          </div>
        </section>
      )}
    </>
  );
}
