/** `svc disk`: the disk space that apps use. */
import type { Command } from "commander";
import { diskPercent } from "../../lib/disk-share.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import { formatBytes, formatMeasured, formatPercent } from "../output/units.ts";
import { calls, type AppDisk } from "../client/calls.ts";

export function addDiskCommand(parent: Command, run: RunCommand): void {
  parent
    .command("disk")
    .description("show disk usage of apps, largest first")
    .argument("[id]", "only this app, with its volumes")
    .action(run((context, id?: string) => (id === undefined ? showReport(context) : showApp(context, id))));
}

async function showReport(context: CommandContext): Promise<void> {
  const report = await context.call(calls.getDiskReport, {});
  if (context.json) return context.printJson(report);
  await printTable(context, report.apps);
  explainUnknown(context, report.apps);
  if (report.cache_bytes > 0) context.note(`Package cache: ${formatBytes(report.cache_bytes)}`);
  if (report.filesystem === undefined) return;
  const { size_bytes: size, used_bytes: used, available_bytes: available } = report.filesystem;
  const percent = formatPercent(diskPercent({ usedBytes: used, availableBytes: available }));
  context.note(
    `Filesystem: ${formatBytes(used)} of ${formatBytes(size)} used (${percent}), ${formatBytes(available)} free`,
  );
}

async function showApp(context: CommandContext, id: string): Promise<void> {
  const disk = await context.call(calls.getAppDisk, { id });
  if (context.json) return context.printJson(disk);
  await printTable(context, [disk]);
  explainUnknown(context, [disk]);
  if (disk.volumes.length === 0) return;
  await context.print("\n");
  await context.printTable(
    [
      { title: "VOLUME", value: (volume) => volume.name, shrinkTo: 8 },
      { title: "SIZE", value: (volume) => formatBytes(volume.size_bytes), align: "right" },
    ],
    disk.volumes,
  );
}

function explainUnknown(context: CommandContext, apps: readonly AppDisk[]): void {
  for (const { id, unknown } of apps) {
    if (unknown !== undefined) context.note(`${id}: could not measure everything: ${unknown}`);
  }
}

function printTable(context: CommandContext, apps: readonly AppDisk[]): Promise<void> {
  return context.printTable<AppDisk>(
    [
      { title: "ID", value: (app) => app.id },
      {
        title: "IMAGE",
        dispensable: 1,
        value: (app) => formatMeasured(app.image_bytes),
        align: "right",
      },
      {
        title: "REPOSITORY",
        value: (app) => formatBytes(app.repository_bytes),
        align: "right",
        dispensable: 2,
      },
      { title: "DATA", value: (app) => formatBytes(app.data_bytes), align: "right", dispensable: 1 },
      { title: "VOLUMES", value: (app) => formatBytes(app.volumes_bytes), align: "right", dispensable: 2 },
      {
        title: "TOTAL",
        value: (app) => (app.unknown === undefined ? formatBytes(app.total_bytes) : "unknown"),
        align: "right",
      },
    ],
    apps,
  );
}
