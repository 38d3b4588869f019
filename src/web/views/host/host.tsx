import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type {
  DiskMetrics,
  FilesystemMetrics,
  InterfaceMetrics,
  Pressure,
  SystemMetrics,
} from "../../../../gen/svc/v1/monitor_pb.ts";
import { diskPercent } from "../../../lib/disk-share.ts";
import { useHostSample } from "../../host-sample.ts";
import { Facts } from "../../parts/facts.tsx";
import { Heading } from "../../parts/heading.tsx";
import { Bar, Meter, percentOf } from "../../parts/meter.tsx";
import { Table, type Column } from "../../parts/table.tsx";
import { Text } from "../../parts/text.tsx";
import { plainText } from "../../plain-text.ts";
import { texts } from "../../texts.ts";
import { hostTexts as says } from "../../texts/host.ts";
import { formatBytes, formatDuration, formatPercent, formatRate } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";
import { Reboot } from "./reboot.tsx";

const { columns } = says;

/** The machine as it is now. */
export function HostView({ api, node }: ViewProps) {
  const now = useHostSample(api);
  return (
    <>
      <Heading title={texts.host.title} />
      {now === undefined ? <p>{texts.loading}</p> : <Sample now={now} />}
      <Reboot api={api} node={node} />
    </>
  );
}

function Sample({ now }: { now: SystemMetrics }) {
  return (
    <>
      <div class="cards">
        <Processors now={now} />
        <Memory now={now} />
        <Facts title={says.now} facts={factsOf(now)} />
      </div>
      <h2>{says.filesystems}</h2>
      <Table
        label={says.filesystems}
        rows={now.filesystems}
        keyOf={({ path }) => path}
        none={says.noFilesystems}
        columns={filesystemColumns}
      />
      <h2>{says.disks}</h2>
      <Table
        label={says.disks}
        rows={now.disks}
        keyOf={({ name }) => name}
        none={says.noDisks}
        columns={diskColumns}
      />
      <h2>{says.networks}</h2>
      <Networks of={now.interfaces} />
    </>
  );
}

/** Those of containers, of which there is one for each, are there for whoever wants them. */
function Networks({ of }: { of: readonly InterfaceMetrics[] }) {
  const isOpen = useSignal(false);
  const table = (label: string, rows: readonly InterfaceMetrics[]) => (
    <Table
      label={label}
      rows={rows}
      keyOf={({ name }) => name}
      none={says.noNetworks}
      columns={interfaceColumns}
    />
  );
  const [pairs, others] = [of.filter(isContainers), of.filter((each) => !isContainers(each))];
  const label = says.ofContainers(pairs.length);
  return (
    <>
      {table(says.networks, others)}
      {pairs.length > 0 && (
        <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
          <summary>{label}</summary>
          {isOpen.value && table(label, pairs)}
        </details>
      )}
    </>
  );
}

/** The host's end of a pair, as container engines name it. */
function isContainers({ name }: InterfaceMetrics): boolean {
  return name.startsWith("veth");
}

function Processors({ now: { cpuPercent, cpu, cores } }: { now: SystemMetrics }) {
  const shares = cores.map(({ idlePercent, iowaitPercent }) => 100 - idlePercent - iowaitPercent);
  return (
    <section class="card" aria-labelledby="processors">
      <h2 id="processors">{says.cores}</h2>
      <Meter label={says.busy} share={cpuPercent} says={formatPercent(cpuPercent)} />
      {cpu !== undefined && (
        <Meter label={says.waits} share={cpu.iowaitPercent} says={formatPercent(cpu.iowaitPercent)} />
      )}
      {shares.map((share, number) => (
        <Meter key={number} label={says.core(number)} share={share} says={formatPercent(share)} />
      ))}
    </section>
  );
}

function Memory({ now }: { now: SystemMetrics }) {
  const { memoryTotalBytes: total, swapTotalBytes: swap } = now;
  const used = total - now.memoryAvailableBytes;
  const parts = [
    [says.cached, now.memoryCachedBytes],
    [says.slab, now.memorySlabBytes],
    [says.free, now.memoryFreeBytes],
  ] as const;
  return (
    <section class="card" aria-labelledby="memory">
      <h2 id="memory">{says.memory}</h2>
      <Meter isRoom label={says.used} share={percentOf(used, total)} says={share(used, total)} />
      {swap > 0n && (
        <Meter
          label={says.swap}
          share={percentOf(now.swapUsedBytes, swap)}
          says={share(now.swapUsedBytes, swap)}
        />
      )}
      {parts.map(
        ([name, bytes]) =>
          bytes !== undefined && (
            <Meter key={name} label={name} share={percentOf(bytes, total)} says={formatBytes(bytes)} />
          ),
      )}
    </section>
  );
}

function factsOf(now: SystemMetrics): readonly (readonly [string, ComponentChildren])[] {
  const { load1, load5, load15, cpuPressure, memoryPressure, ioPressure, temperatures } = now;
  return [
    [says.load, [load1, load5, load15].map((load) => load.toFixed(2)).join(" ")],
    [says.processes, now.processes],
    [says.uptime, formatDuration(Number(now.uptimeSecs))],
    [says.pressureOf.cpu, pressure(cpuPressure)],
    [says.pressureOf.memory, pressure(memoryPressure)],
    [says.pressureOf.io, pressure(ioPressure)],
    [
      says.temperatures,
      temperatures.map(({ name, celsius }) => `${plainText(name)} ${says.celsius(celsius)}`).join(", "),
    ],
  ];
}

const filesystemColumns: readonly Column<FilesystemMetrics>[] = [
  { title: columns.path, cell: ({ path }) => <Text of={path} /> },
  {
    title: columns.used,
    cell: ({ path, usedBytes, sizeBytes, availableBytes }) => (
      <>
        {share(usedBytes, sizeBytes)}{" "}
        <Bar label={plainText(path)} share={diskPercent({ usedBytes, availableBytes })} />
      </>
    ),
  },
  { title: columns.left, kind: "figure", cell: ({ availableBytes }) => formatBytes(availableBytes) },
  {
    title: columns.files,
    kind: "figure",
    cell: ({ inodes = 0n, usedInodes = 0n }) =>
      inodes === 0n ? "" : formatPercent(percentOf(usedInodes, inodes)),
  },
  { title: columns.type, cell: ({ type }) => <Text of={type} /> },
  { title: columns.device, cell: ({ device }) => <Text of={device} /> },
];

const diskColumns: readonly Column<DiskMetrics>[] = [
  { title: columns.disk, cell: ({ name }) => <Text of={name} /> },
  { title: columns.read, kind: "figure", cell: ({ readPerSec }) => formatRate(readPerSec) },
  { title: columns.written, kind: "figure", cell: ({ writtenPerSec }) => formatRate(writtenPerSec) },
  {
    title: columns.busy,
    kind: "figure",
    cell: ({ busyPercent }) => (busyPercent === undefined ? "" : formatPercent(busyPercent)),
  },
];

const interfaceColumns: readonly Column<InterfaceMetrics>[] = [
  { title: columns.network, cell: ({ name }) => <Text of={name} /> },
  { title: columns.received, kind: "figure", cell: ({ receivedPerSec }) => formatRate(receivedPerSec) },
  { title: columns.sent, kind: "figure", cell: ({ sentPerSec }) => formatRate(sentPerSec) },
  { title: columns.errors, kind: "figure", cell: ({ errors }) => String(errors ?? "") },
  { title: columns.dropped, kind: "figure", cell: ({ dropped }) => String(dropped ?? "") },
];

function share(part: bigint, whole: bigint): string {
  return texts.overview.used(formatBytes(part), formatBytes(whole));
}

function pressure(of: Pressure | undefined): string {
  return of === undefined ? "" : says.pressureSays(formatPercent(of.some10), formatPercent(of.some60));
}
