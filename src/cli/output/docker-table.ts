/** Tables of containers, images, volumes and networks. */
import type {
  Container,
  ContainerDetails,
  ContainerStats,
  ControlResult,
  Image,
  Network,
  PruneResult,
  Volume,
} from "../client/calls.ts";
import type { Color } from "./color.ts";
import type { Column, Field } from "./table.ts";
import { formatAge, formatBothWays, formatBytes, formatMeasured, formatPercent } from "./units.ts";

/** Enough digits to tell containers and images apart. */
function shortId(id: string): string {
  return id.replace(/^sha256:/, "").slice(0, 12);
}

function stateColor(state: string): Color | undefined {
  switch (state) {
    case "running":
      return "green";
    case "paused":
    case "restarting":
      return "yellow";
    case "dead":
      return "red";
    default:
      return "dim";
  }
}

/** `127.0.0.1:8080→80/tcp`, or `80/tcp` for an unpublished port. */
function portText({
  protocol,
  containerPort,
  hostPort,
  hostAddress = "",
}: Container["ports"][number]): string {
  const inside = `${containerPort}/${protocol}`;
  if (hostPort === undefined) return inside;
  const address = hostAddress.includes(":") ? `[${hostAddress}]` : hostAddress;
  return `${address}${address === "" ? "" : ":"}${hostPort}→${inside}`;
}

function imageText({ image }: Pick<Container, "image">): string {
  return image.startsWith("sha256:") ? shortId(image) : image;
}

export function containerColumns(containers: readonly Container[], size: boolean): Column<Container>[] {
  const project: Column<Container> = {
    title: "PROJECT",
    dispensable: 4,
    value: ({ composeProject = "" }) => composeProject,
    shrinkTo: 8,
    isHidden: containers.every(({ composeProject }) => composeProject === undefined),
  };
  return [
    { title: "ID", value: ({ id }) => shortId(id), dispensable: 3 },
    { title: "NAME", value: ({ name }) => name, isKey: true },
    { title: "IMAGE", value: imageText, shrinkTo: 12, dispensable: 2 },
    { title: "STATUS", value: ({ status }) => status, color: ({ state }) => stateColor(state), shrinkTo: 12 },
    { title: "PORTS", value: ({ ports }) => ports.map(portText).join(", "), shrinkTo: 10, dispensable: 1 },
    { title: "APP", value: ({ appId = "" }) => appId, color: () => "cyan", shrinkTo: 8 },
    project,
    ...(size ? [sizeColumn] : []),
  ];
}

const sizeColumn: Column<Container> = {
  title: "SIZE",
  value: ({ sizeBytes = 0 }) => formatBytes(sizeBytes),
  align: "right",
};

export const containerStatsColumns: readonly Column<ContainerStats>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "CPU", value: ({ cpuPercent }) => formatPercent(cpuPercent), align: "right" },
  { title: "MEMORY", value: ({ memoryBytes }) => formatBytes(memoryBytes), align: "right" },
  {
    title: "LIMIT",
    dispensable: 2,
    value: ({ memoryLimitBytes }) => formatMeasured(memoryLimitBytes),
    align: "right",
  },
  {
    title: "NETWORK IN / OUT",
    dispensable: 1,
    value: (stats) => formatBothWays(stats.networkReceivedBytes, stats.networkSentBytes),
    align: "right",
  },
  {
    title: "DISK READ / WRITTEN",
    dispensable: 1,
    value: (stats) => formatBothWays(stats.blockReadBytes, stats.blockWrittenBytes),
    align: "right",
  },
];

/** Columns of images and volumes: what uses them. */
const useColumns: readonly Column<Pick<Image, "containers" | "protectedReason">>[] = [
  { title: "CONTAINERS", value: ({ containers }) => String(containers), align: "right" },
  {
    title: "PROTECTED",
    value: ({ protectedReason = "" }) => protectedReason,
    color: () => "cyan",
    shrinkTo: 12,
  },
];

export function imageColumns(nowMs: number): Column<Image>[] {
  return [
    { title: "TAGS", value: ({ tags }) => (tags.length === 0 ? "<none>" : tags.join(", ")), shrinkTo: 16 },
    { title: "ID", value: ({ id }) => shortId(id) },
    { title: "CREATED", value: ({ createdAt }) => formatAge(createdAt, nowMs), dispensable: 2 },
    { title: "SIZE", value: ({ sizeBytes }) => formatBytes(sizeBytes), align: "right" },
    ...useColumns,
  ];
}

export function volumeColumns(nowMs: number): Column<Volume>[] {
  return [
    { title: "NAME", value: ({ name }) => name, shrinkTo: 16 },
    { title: "DRIVER", value: ({ driver }) => driver, dispensable: 2 },
    { title: "CREATED", value: ({ createdAt }) => formatAge(createdAt, nowMs) },
    ...useColumns,
  ];
}

export const networkColumns: readonly Column<Network>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "ID", value: ({ id }) => shortId(id) },
  { title: "DRIVER", value: ({ driver }) => driver },
  { title: "SCOPE", value: ({ scope }) => scope, dispensable: 3 },
  { title: "SUBNETS", value: ({ subnets }) => subnets.join(", "), shrinkTo: 12 },
  { title: "INTERNAL", value: ({ internal }) => (internal ? "yes" : "") },
];

export function prunedColumns(dryRun: boolean): Column<PruneResult["removed"][number]>[] {
  return [
    {
      title: dryRun ? "WOULD BE REMOVED" : "REMOVED",
      value: ({ id, name }) => name || shortId(id),
      shrinkTo: 16,
    },
    { title: "SIZE", value: ({ sizeBytes }) => formatBytes(sizeBytes), align: "right" },
  ];
}

export const skippedColumns: readonly Column<PruneResult["skipped"][number]>[] = [
  { title: "STAYS", value: ({ id, name }) => name || shortId(id), shrinkTo: 16 },
  { title: "WHY", value: ({ reason }) => reason, shrinkTo: 20 },
];

/** One line per container: `Stopped web`, or `web: the container is exited`. @param did the action, such as `Stopped` */
export function controlLines(did: string, { controlled, skipped }: ControlResult): string[] {
  return [
    ...controlled.map(({ name }) => `${did} ${name}`),
    ...skipped.map(({ name, reason }) => `Nothing to do for ${name}: ${reason}`),
  ];
}

export function containerFields(details: ContainerDetails): Field[] {
  const { container, command, health, restarts, restartPolicy, mounts, networks, labels } = details;
  if (container === undefined) return [];
  return [
    ["Name", container.name],
    ["ID", container.id],
    ["Image", `${imageText(container)} (${shortId(container.imageId)})`],
    ["Status", container.status, stateColor(container.state)],
    ["App", container.appId, "cyan"],
    ["Project", container.composeProject],
    ["Service", container.composeService],
    ["Command", command.join(" ")],
    ["Created", container.createdAt],
    ["Started", details.startedAt],
    ["Finished", details.finishedAt],
    ["Exit code", details.exitCode?.toString()],
    ["Health", health],
    ["Restarts", restarts === 0 ? undefined : String(restarts)],
    ["Policy", restartPolicy],
    ["Ports", container.ports.map(portText).join(", ")],
    ...mounts.map(({ type, source, target, readOnly }): Field => [
      "Mount",
      `${target} from ${type} ${source}${readOnly ? " (read only)" : ""}`,
    ]),
    ["Networks", networks.join(", ")],
    ...Object.entries(labels).map(([name, value]): Field => ["Label", `${name}=${value}`]),
  ];
}
