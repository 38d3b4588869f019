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
import { hostTexts as labels } from "../../texts/host.ts";
import { formatBytes, formatDuration, formatPercent, formatRate } from "../../units.ts";
import type { ViewProps } from "../../view-props.ts";
import { Reboot } from "./reboot.tsx";

const { columns } = labels;

/** The host's current metrics. */
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
        <Facts title={labels.now} facts={factsOf(now)} />
      </div>
      <h2>{labels.filesystems}</h2>
      <Table
        label={labels.filesystems}
        rows={now.filesystems}
        keyOf={({ path }) => path}
        none={labels.noFilesystems}
        columns={filesystemColumns}
      />
      <h2>{labels.disks}</h2>
      <Table
        label={labels.disks}
        rows={now.disks}
        keyOf={({ name }) => name}
        none={labels.noDisks}
        columns={diskColumns}
      />
      <h2>{labels.networks}</h2>
      <Networks of={now.interfaces} />
    </>
  );
}

/** Interfaces of containers are listed separately, because there is one per container. */
function Networks({ of }: { of: readonly InterfaceMetrics[] }) {
  const isOpen = useSignal(false);
  const table = (label: string, rows: readonly InterfaceMetrics[]) => (
    <Table
      label={label}
      rows={rows}
      keyOf={({ name }) => name}
      none={labels.noNetworks}
      columns={interfaceColumns}
    />
  );
  const [pairs, others] = [of.filter(isContainers), of.filter((each) => !isContainers(each))];
  const label = labels.ofContainers(pairs.length);
  return (
    <>
      {table(labels.networks, others)}
      {pairs.length > 0 && (
        <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
          <summary>{label}</summary>
          {isOpen.value && table(label, pairs)}
        </details>
      )}
    </>
  );
}

/** The host's end of a veth pair, by the names that container engines use. */
function isContainers({ name }: InterfaceMetrics): boolean {
  return name.startsWith("veth");
}

function Processors({ now: { cpuPercent, cpu, cores } }: { now: SystemMetrics }) {
  const shares = cores.map(({ idlePercent, iowaitPercent }) => 100 - idlePercent - iowaitPercent);
  return (
    <section class="card" aria-labelledby="processors">
      <h2 id="processors">{labels.cores}</h2>
      <Meter label={labels.busy} share={cpuPercent} text={formatPercent(cpuPercent)} />
      {cpu !== undefined && (
        <Meter label={labels.waits} share={cpu.iowaitPercent} text={formatPercent(cpu.iowaitPercent)} />
      )}
      {shares.map((share, number) => (
        <Meter key={number} label={labels.core(number)} share={share} text={formatPercent(share)} />
      ))}
    </section>
  );
}

function Memory({ now }: { now: SystemMetrics }) {
  const { memoryTotalBytes: total, swapTotalBytes: swap } = now;
  const used = total - now.memoryAvailableBytes;
  const parts = [
    [labels.cached, now.memoryCachedBytes],
    [labels.slab, now.memorySlabBytes],
    [labels.free, now.memoryFreeBytes],
  ] as const;
  return (
    <section class="card" aria-labelledby="memory">
      <h2 id="memory">{labels.memory}</h2>
      <Meter isCapacity label={labels.used} share={percentOf(used, total)} text={share(used, total)} />
      {swap > 0n && (
        <Meter
          label={labels.swap}
          share={percentOf(now.swapUsedBytes, swap)}
          text={share(now.swapUsedBytes, swap)}
        />
      )}
      {parts.map(
        ([name, bytes]) =>
          bytes !== undefined && (
            <Meter key={name} label={name} share={percentOf(bytes, total)} text={formatBytes(bytes)} />
          ),
      )}
    </section>
  );
}

function factsOf(now: SystemMetrics): readonly (readonly [string, ComponentChildren])[] {
  const { load1, load5, load15, cpuPressure, memoryPressure, ioPressure, temperatures } = now;
  return [
    [labels.load, [load1, load5, load15].map((load) => load.toFixed(2)).join(" ")],
    [labels.processes, now.processes],
    [labels.uptime, formatDuration(Number(now.uptimeSecs))],
    [labels.pressureOf.cpu, pressure(cpuPressure)],
    [labels.pressureOf.memory, pressure(memoryPressure)],
    [labels.pressureOf.io, pressure(ioPressure)],
    [
      labels.temperatures,
      temperatures.map(({ name, celsius }) => `${plainText(name)} ${labels.celsius(celsius)}`).join(", "),
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
  return of === undefined ? "" : labels.pressureSays(formatPercent(of.some10), formatPercent(of.some60));
}
