import type { App } from "../../../gen/svc/v1/app_pb.ts";
import type { FilesystemMetrics, SystemMetrics } from "../../../gen/svc/v1/monitor_pb.ts";
import { diskPercent } from "../../lib/disk-share.ts";
import type { Api } from "../api.ts";
import { shownState } from "../app-state.ts";
import { useHostSample } from "../host-sample.ts";
import type { NodeView } from "../node-view.ts";
import { lazily } from "../parts/lazily.tsx";
import { Heading } from "../parts/heading.tsx";
import { Meter, percentOf } from "../parts/meter.tsx";
import { RunningOperations } from "../parts/running-operations.tsx";
import { State } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { formatBytes, formatDuration, formatPercent } from "../units.ts";

const Attention = lazily(() => import("./attention.tsx"), "Attention");
const CancelOperation = lazily(() => import("./cancel-operation.tsx"), "CancelOperation");
const HostHistory = lazily(() => import("./history.tsx"), "HostHistory");

export function OverviewView({ api, node }: { api: Api; node: NodeView }) {
  const apps = node.apps.value;
  return (
    <>
      <Heading title={texts.overview.title} />
      {apps === undefined ? (
        <p>{texts.loading}</p>
      ) : (
        <div class="cards">
          <States apps={[...apps.values()]} />
          <Attention api={api} node={node} />
          <UnderWay api={api} node={node} apps={[...apps.values()]} />
          <RunningOperations node={node} />
          <Host api={api} />
        </div>
      )}
      <HostHistory api={api} />
    </>
  );
}

function States({ apps }: { apps: readonly App[] }) {
  const byState = Map.groupBy(apps, shownState);
  return (
    <section class="card" aria-labelledby="states">
      <h2 id="states">{texts.overview.apps}</h2>
      {apps.length === 0 ? (
        <p>
          {texts.apps.none} <a href={pathTo("install")}>{texts.install.title}</a>
        </p>
      ) : (
        <dl class="figures">
          {[...byState].map(([state, { length }]) => (
            <div key={state}>
              <dt>
                <State state={state} />
              </dt>
              <dd>{length}</dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

/** Apps with an operation that {@link RunningOperations} does not list, such as a start. */
function UnderWay({ api, node, apps }: { api: Api; node: NodeView; apps: readonly App[] }) {
  const listed = new Set(node.operations.running.value.map(({ appId }) => appId));
  const busy = apps.filter(({ id, operation }) => operation !== undefined && !listed.has(id));
  if (busy.length === 0) return undefined;
  return (
    <section class="card" aria-labelledby="under-way">
      <h2 id="under-way">{texts.overview.underWay}</h2>
      <ul class="troubles">
        {busy.map((app) => (
          <li key={app.id}>
            <a href={pathTo("apps", app.id)}>
              <Text of={app.name} />
            </a>{" "}
            <State state={shownState(app)} />{" "}
            <Text of={texts.app.underWay(app.operation?.kind ?? "", app.operation?.phase ?? "")} />{" "}
            <progress aria-label={texts.app.operation} />
            {app.operation?.cancelable === true && <CancelOperation api={api} app={app} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Host({ api }: { api: Api }) {
  const now = useHostSample(api);
  return (
    <section class="card" aria-labelledby="host">
      <h2 id="host">{texts.overview.host}</h2>
      {now === undefined ? <p>{texts.loading}</p> : <Figures now={now} />}
    </section>
  );
}

function Figures({ now }: { now: SystemMetrics }) {
  const used = now.memoryTotalBytes - now.memoryAvailableBytes;
  return (
    <>
      <Meter
        label={texts.overview.processor(now.cpuCount)}
        share={now.cpuPercent}
        text={formatPercent(now.cpuPercent)}
      />
      <Meter
        isCapacity
        label={texts.overview.memory}
        share={percentOf(used, now.memoryTotalBytes)}
        text={texts.overview.used(formatBytes(used), formatBytes(now.memoryTotalBytes))}
      />
      {disksOf(now).map(({ path, usedBytes, sizeBytes, availableBytes }) => (
        <Meter
          key={path}
          isCapacity
          label={texts.overview.disk(plainText(path))}
          share={diskPercent({ usedBytes, availableBytes })}
          text={texts.overview.used(formatBytes(usedBytes), formatBytes(sizeBytes))}
        />
      ))}
      <dl class="figures">
        <div>
          <dt>{texts.overview.load}</dt>
          <dd>{[now.load1, now.load5, now.load15].map((load) => load.toFixed(2)).join(" ")}</dd>
        </div>
        <div>
          <dt>{texts.overview.uptime}</dt>
          <dd>{formatDuration(Number(now.uptimeSecs))}</dd>
        </div>
      </dl>
    </>
  );
}

const leastDiskBytes = 2n ** 24n;

/**
 * Writable filesystems, without duplicates: a container engine mounts the same one for each container. The
 * host view lists all.
 */
function disksOf({ filesystems }: SystemMetrics): FilesystemMetrics[] {
  const first = new Map<string, FilesystemMetrics>();
  for (const filesystem of filesystems.toSorted((one, other) => one.path.length - other.path.length)) {
    const { sizeBytes, usedBytes } = filesystem;
    const room = `${String(sizeBytes)} ${String(usedBytes)}`;
    if (sizeBytes >= leastDiskBytes && !first.has(room)) first.set(room, filesystem);
  }
  return [...first.values()];
}
